#include "tools/session_flags.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <utility>

#include "base/log.h"
#include "tools/own_task.h"
#include "transport/control/key.h"

namespace monograph {
namespace {

Result<std::chrono::milliseconds> Milliseconds(const char* flag, double seconds) {
  if (!(seconds >= 0) || seconds > 1e9)
    return InvalidArgument(std::string("--") + flag + " is a number of seconds, 0 to 1e9");
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

// Where the placement is written; empty: to standard output. What programs read must not share a
// stream with the lines of this one.
std::function<void(const std::string&)> PlacementSink(PlacementLog log, const std::string& path) {
  if (!path.empty()) {
    return [path](const std::string& text) {
      std::ofstream file(path, std::ios::trunc);
      file << text;
      file.close();
      if (!file) LogError("cannot write the placement to '" + path + "'");
    };
  }
  if (log != PlacementLog::kJson && log != PlacementLog::kDot) return {};
  return [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); };
}

}  // namespace

void SessionFlags::AddClusterTo(Flags* flags) {
  flags->Section("Cluster (none: everything runs in this process)");
  AddNamesTo(flags);
  flags->Add("key_file", &key_file,
             "the cluster's key, made by `monograph keygen`; default: the environment's "
             "MONOGRAPH_KEY_FILE");
  flags->Add("start_timeout", &start_timeout,
             "how long to wait for daemons that are not up yet, in seconds");
  flags->Add("device_filters", &device_filters,
             "use only these tasks: /job:ps,/job:worker/task:0,...");
  flags->AddCheck([this]() -> Status {
    MG_RETURN_IF_ERROR(Cluster().status());
    return Options().status();
  });
}

void SessionFlags::AddTo(Flags* flags) {
  AddClusterTo(flags);
  flags->Section("Session");
  flags->AddChoice("log_device_placement", &log_device_placement,
                   {"none", "full", "summary", "json", "dot"},
                   "say where every node runs, or how many per device (summary)", "full", "none");
  flags->AddOutputFile("placement_file", &placement_file,
                       "file for what --log_device_placement says, which is its latest state; "
                       "without one full and summary go to standard output, json and dot to "
                       "standard error");
  flags->AddCheck([this]() -> Status {
    if (placement_file.empty() || log_device_placement != "none") return Status();
    return InvalidArgument(
        "--placement_file needs --log_device_placement, which says what to write");
  });
  flags->Add("allow_soft_placement", &allow_soft_placement,
             "let a node run on another device of its task where its own lacks a kernel");
  flags->Add("inter_op_parallelism_threads", &inter_op_parallelism_threads,
             "threads of this process that run nodes beside each other; 0: one per core. Daemons "
             "have their own flag",
             0, Flags::kMostThreads);
  flags->Add("intra_op_parallelism_threads", &intra_op_parallelism_threads,
             "threads of this process inside one kernel; 0: one per core", 0, Flags::kMostThreads);
  flags->AddChoice("opt_level", &opt_level, {"L0", "L1"},
                   "graph optimisation, as OptimizerOptions has it: L1 folds constants and merges "
                   "equal nodes, L0 runs the graph as it is");
  flags->Add("operation_timeout", &operation_timeout,
             "longest time of one step, in seconds; 0: no limit");
  transport.AddTo(flags);
  gpu.AddTo(flags);
}

Result<std::optional<ClusterSpec>> SessionFlags::Cluster() const {
  if (!given()) MG_RETURN_IF_ERROR(CheckAlone());
  return ReadCluster();
}

Result<SessionOptions> SessionFlags::Options() const {
  SessionOptions options;
  MG_ASSIGN_OR_RETURN(options.log_device_placement, ParsePlacementLog(log_device_placement));
  options.placement_sink = PlacementSink(options.log_device_placement, placement_file);
  options.optimizer.level = opt_level == "L0" ? 0 : 1;
  options.allow_soft_placement = allow_soft_placement;
  options.inter_op_parallelism_threads = inter_op_parallelism_threads;
  options.intra_op_parallelism_threads = intra_op_parallelism_threads;
  MG_ASSIGN_OR_RETURN(options.operation_timeout,
                      Milliseconds("operation_timeout", operation_timeout));
  MG_ASSIGN_OR_RETURN(options.start_timeout, Milliseconds("start_timeout", start_timeout));
  for (size_t begin = 0; begin < device_filters.size();) {
    const size_t end = std::min(device_filters.find(',', begin), device_filters.size());
    if (end > begin) {
      options.device_filters.push_back(device_filters.substr(begin, end - begin));
      const Status filter = DeviceName::Parse(options.device_filters.back()).status();
      if (!filter.ok()) return filter.WithContext("--device_filters");
    }
    begin = end + 1;
  }
  std::string key_path = key_file;
  if (const char* path = std::getenv("MONOGRAPH_KEY_FILE"); key_path.empty() && path != nullptr)
    key_path = path;
  if (!key_path.empty()) {
    MG_ASSIGN_OR_RETURN(options.key, control::ReadKeyFile(key_path));
  }
  options.transport = transport.Options();
  MG_ASSIGN_OR_RETURN(options.gpu, gpu.Options());
  return options;
}

Result<std::unique_ptr<Session>> SessionFlags::Open(const std::optional<ClusterSpec>& spec,
                                                    const Graph& graph, int local_devices) const {
  MG_ASSIGN_OR_RETURN(SessionOptions options, Options());
  if (spec) return Session::Connect(*spec, graph, std::move(options));
  options.device_count = {{kCpu, local_devices}};
  return Session::Local(graph, std::move(options));
}

}  // namespace monograph
