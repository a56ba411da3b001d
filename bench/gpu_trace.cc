#include "bench/gpu_trace.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "bench/gpu_least.h"
#include "bench/gpu_training.h"

namespace monograph::bench {
namespace {

constexpr size_t kShown = 40;

// Not what a library computes, nor what only looks at its input in another way.
bool IsOwnKernel(std::string_view op) {
  static const std::set<std::string_view> others{"Conv2D",
                                                 "Conv2DBackpropInput",
                                                 "Conv2DBackpropFilter",
                                                 "_Conv2DBackpropFilter",
                                                 "_Conv2DBackpropInput",
                                                 "_FusedConv2D",
                                                 "MatMul",
                                                 "_FusedMatMul",
                                                 "BatchMatMulV2",
                                                 "_FusedAttention",
                                                 "Identity",
                                                 "Reshape",
                                                 "Squeeze",
                                                 "ExpandDims",
                                                 "StopGradient",
                                                 "ReadVariableOp",
                                                 "_FusedAttentionGrad"};
  return !others.contains(op);
}

// Of an event that took no time to tell.
double Rate(int64_t bytes, double us) {
  return static_cast<double>(bytes) * 1e-3 / std::max(us, 1e-3);  // GB/s
}

void PrintLongest(const std::string& name, std::vector<TracedNode> nodes, double copy_rate) {
  double all = 0;
  for (const TracedNode& node : nodes) all += node.us;
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.us > b.us; });
  std::printf(
      "%s: %zu nodes of a traced step take %.1f us; a copy on the device moves %.0f GB/s\n\n"
      "| node | op | us | %% of all | MB | GB/s | of a copy |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n",
      name.c_str(), nodes.size(), all, copy_rate);
  for (const TracedNode& node : std::span(nodes).first(std::min(kShown, nodes.size()))) {
    const double rate = Rate(node.bytes, node.us);
    std::printf("| %s | %s | %.1f | %.1f | %.1f | %.0f | %.2f |\n", node.name.c_str(),
                node.op.c_str(), node.us, 100 * node.us / std::max(all, 1e-3),
                static_cast<double>(node.bytes) * 1e-6, rate, rate / copy_rate);
  }
  std::printf("\n");
}

struct Moved {
  int64_t bytes = 0;
  double us = 0;
};

// Our own kernels that move much, by op; "all" has them together.
std::map<std::string, Moved> OwnByOp(const std::vector<TracedNode>& nodes) {
  std::map<std::string, Moved> by_op;
  for (const TracedNode& node : nodes) {
    if (!IsOwnKernel(node.op) || node.bytes < kBytesWithRate) continue;
    for (Moved* sum : {&by_op[node.op], &by_op["all"]}) {
      sum->bytes += node.bytes;
      sum->us += node.us;
    }
  }
  return by_op;
}

}  // namespace

std::vector<TracedNode> NodesOnGpu(const Graph& step, const std::string& trace) {
  std::vector<TracedNode> nodes;
  const nlohmann::json parsed = nlohmann::json::parse(trace);
  for (const nlohmann::json& event : parsed.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("args").contains("id")) continue;  // a node of the plan
    TracedNode node{event.at("name"), event.at("args").at("op"), event.at("ts").get<double>(),
                    event.at("dur").get<double>(), event.at("args").value("bytes", int64_t{0})};
    node.bytes += BytesReadAgain(step, node.name, node.op, node.bytes);
    nodes.push_back(std::move(node));
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.start < b.start; });
  return nodes;
}

double DeviceCopyRate(CudaFloors& floors) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  return 2 * static_cast<double>(kBytes) / floors.CopySeconds(kBytes, CopyKind::kOnDevice);
}

void CompareWithCopy(const Args& args, CudaFloors& floors, Report& report, const GpuStep& step,
                     const std::string& name) {
  Training training(step.model, step.images, step.mode);
  const Graph graph = training.Step();
  const auto traced = [&] { return NodesOnGpu(graph, training.Trace()); };
  (void)traced();  // what is loaded late
  const auto copy = [&] { return 1e-9 * DeviceCopyRate(floors); };
  (void)copy();
  const std::vector<TracedNode> nodes = traced();
  PrintLongest(name, nodes, copy());
  std::vector<Subject> subjects;
  for (const auto& [op, moved] : OwnByOp(nodes))
    subjects.push_back({name + ", " + op, kGoalOfCopy});
  if (subjects.empty()) Die(name + ": the trace has no kernel of ours that moves much");
  const auto rates = [&]() -> std::optional<std::vector<double>> {
    std::vector<double> values;
    for (const auto& [op, moved] : OwnByOp(traced())) values.push_back(Rate(moved.bytes, moved.us));
    return values;
  };
  const auto copies = [&] { return std::optional(std::vector(subjects.size(), copy())); };
  report.Compare("gpu", "GB/s", subjects, {.name = "ours", .repetition = rates},
                 {{.name = "copy on the device", .repetition = copies}}, args.Repetitions(9));
}

}  // namespace monograph::bench
