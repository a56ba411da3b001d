// The trace of a step says in which order a segment's nodes went to the device and how many bytes
// each has. The emulated runtime writes down every call; in a traced step there is a timed event
// before the first node and behind each, so that the calls between two of them are a node's.
#include "bench/gpu_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "bench/gpu_least.h"
#include "bench/gpu_trace.h"
#include "bench/harness.h"

namespace monograph::bench {
namespace {

constexpr char kLog[] = "MG_EMULATED_GPU_LOG";

struct Sum {
  int64_t bytes = 0;
  int launches = 0;
};

double Microseconds(int64_t bytes) {
  return 1e6 * static_cast<double>(bytes) / kPlanBytesPerSecond;
}

// Calls between timed events, from the first to the last of these. Calls that give the device
// nothing to do are left out.
std::vector<int> LaunchesOf(const std::string& log, std::streamoff from) {
  std::fflush(nullptr);  // the emulated runtime's, too
  std::ifstream file(log);
  file.seekg(from);
  std::vector<int> launches;
  int since = 0;
  for (std::string line; std::getline(file, line);) {
    const std::string call = line.substr(0, line.find(' '));
    if (line == "cudaEventRecord timed") {
      launches.push_back(std::exchange(since, 0));
    } else if (call == "launch" || call.starts_with("cudaMemcpy") ||
               call.starts_with("cudaMemset") || call.starts_with("cudnn") ||
               call.starts_with("cublas")) {
      ++since;
    }
  }
  if (!launches.empty()) launches.erase(launches.begin());  // before the first node
  return launches;
}

void Print(const std::string& what, const std::string& op, int launches, int64_t bytes) {
  std::printf("| %s | %s | %d | %.2f | %.1f |\n", what.c_str(), op.c_str(), launches,
              static_cast<double>(bytes) * 1e-6, Microseconds(bytes));
}

void PrintLeast(const Graph& step, int64_t moved) {
  std::printf("\n| at least | MB read | MB written |\n| --- | --- | --- |\n");
  LeastBytes all{.pass = "together"};
  const auto print = [](const LeastBytes& one) {
    std::printf("| %s | %.2f | %.2f |\n", one.pass.c_str(), static_cast<double>(one.read) * 1e-6,
                static_cast<double>(one.written) * 1e-6);
  };
  for (const LeastBytes& one : ListLeastBytes(step)) {
    print(one);
    all.read += one.read;
    all.written += one.written;
  }
  print(all);
  const double ratio = static_cast<double>(moved) / static_cast<double>(all.read + all.written);
  std::printf("\nThe step moves %.3f times that (goal: at most %.2f)%s\n", ratio, kGoalOfBytes,
              ratio > kGoalOfBytes ? ": MISSED" : "");
}

}  // namespace

void EmulateGpu(char** argv) {
  if (std::getenv(kLog) != nullptr) return;
  const std::filesystem::path libraries =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
      "lib/emulated_gpu";
  const std::filesystem::path plugin = libraries / "libmonograph_cuda.so";
  if (!std::filesystem::exists(plugin))
    Die("--plan needs the emulated GPU, which is not at " + plugin.string() +
        ": build the target emulated_cuda, where CUDA and the tests are (-DMG_BUILD_TESTS=ON)");
  const char* const known = std::getenv("LD_LIBRARY_PATH");
  const std::filesystem::path log =
      std::filesystem::temp_directory_path() / ("gpu_plan_" + std::to_string(getpid()));
  setenv("LD_LIBRARY_PATH",
         (libraries.string() + (known == nullptr ? "" : ":" + std::string(known))).c_str(), 1);
  setenv("MONOGRAPH_CUDA_PLUGIN", plugin.c_str(), 1);
  setenv("MG_EMULATED_GPU_COMPUTE", "0", 1);
  setenv(kLog, log.c_str(), 1);
  execv("/proc/self/exe", argv);
  Die("cannot start this program once more for --plan");
}

void PrintPlan(const std::string& name, const Graph& step,
               const std::function<std::string()>& traced) {
  const std::string log = std::getenv(kLog);
  std::fflush(nullptr);
  const auto from = static_cast<std::streamoff>(std::filesystem::file_size(log));
  const std::vector<TracedNode> nodes = NodesOnGpu(step, traced());
  const std::vector<int> launches = LaunchesOf(log, from);
  if (launches.size() != nodes.size())
    Die(name + ": the trace has " + std::to_string(nodes.size()) +
        " nodes on the GPU, and the emulated runtime saw " + std::to_string(launches.size()));

  std::printf(
      "\n%s\n\n| node | op | launches | MB | us at %.1f TB/s |\n| --- | --- | --- | --- | --- |\n",
      name.c_str(), kPlanBytesPerSecond * 1e-12);
  std::map<std::string, Sum> by_op;
  Sum all;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const TracedNode& node = nodes[i];
    if (launches[i] == 0) continue;  // it only looks at its input in another way
    Print(node.name, node.op, launches[i], node.bytes);
    for (Sum* sum : {&by_op[node.op], &all}) {
      sum->launches += launches[i];
      sum->bytes += node.bytes;
    }
  }
  std::vector<std::pair<std::string, Sum>> ops(by_op.begin(), by_op.end());
  std::stable_sort(ops.begin(), ops.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::printf("\n| all of | | launches | MB | us |\n| --- | --- | --- | --- | --- |\n");
  for (const auto& [op, sum] : ops) Print("", op, sum.launches, sum.bytes);
  Print("the step", "", all.launches, all.bytes);
  PrintLeast(step, all.bytes);
}

}  // namespace monograph::bench
