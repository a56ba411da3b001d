#include "tools/session_flags.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "tools/own_task.h"

namespace monograph {
namespace {

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
  return [](const std::string& text) { std::fputs(Printable(text).c_str(), stderr); };
}

}  // namespace

void SessionFlags::AddClusterTo(Flags* flags) {
  flags->Section("Cluster (none: everything runs in this process)");
  AddNamesTo(flags);
  key.AddTo(flags);
  flags->Add("start_timeout", &options.start_timeout,
             "how long to wait for daemons that are not up yet, in seconds");
  flags->Add("device_filters", &options.device_filters,
             "use only these tasks: /job:ps,/job:worker/task:0,...");
  flags->AddCheck([this]() -> Status {
    MG_RETURN_IF_ERROR(Cluster().status());
    for (const std::string& filter : options.device_filters)
      MG_RETURN_IF_ERROR(DeviceName::Parse(filter).status().WithContext("--device_filters"));
    MG_ASSIGN_OR_RETURN(options.key, key.Read());
    return Status();
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
  flags->Add("allow_soft_placement", &options.allow_soft_placement,
             "let a node run on another device of its task where its own lacks a kernel");
  AddThreadFlags(flags, &options.inter_op_parallelism_threads,
                 &options.intra_op_parallelism_threads);
  flags->AddChoice("opt_level", &opt_level, {"L0", "L1"},
                   "graph optimisation, as OptimizerOptions has it: L1 folds constants and merges "
                   "equal nodes, L0 runs the graph as it is");
  flags->Add("tensorflow_random_streams", &options.tensorflow_random_streams,
             "random ops with seeds draw TensorFlow's numbers, on CPUs; else numbers of their own");
  flags->Add("operation_timeout", &options.operation_timeout,
             "longest time of one step, in seconds; 0: no limit");
  AddMemoryFlag(flags);
  AddTensorFlowFlag(flags);
  AddTransportFlags(flags, &options.transport);
  AddGpuFlags(flags, &options.gpu);
}

Result<std::optional<ClusterSpec>> SessionFlags::Cluster() const {
  if (!given()) MG_RETURN_IF_ERROR(CheckAlone());
  return ReadCluster();
}

SessionOptions SessionFlags::Options() const {
  SessionOptions made = options;
  made.log_device_placement = ParsePlacementLog(log_device_placement).value();  // a known word
  made.placement_sink = PlacementSink(made.log_device_placement, placement_file);
  made.optimizer.level = opt_level == "L0" ? 0 : 1;
  return made;
}

Result<std::unique_ptr<Session>> SessionFlags::Open(const std::optional<ClusterSpec>& spec,
                                                    const Graph& graph, int local_devices) const {
  SessionOptions made = Options();
  if (spec) return Session::Connect(*spec, graph, std::move(made));
  made.device_count = {{kCpu, local_devices}};
  return Session::Local(graph, std::move(made));
}

}  // namespace monograph
