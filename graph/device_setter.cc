#include "graph/device_setter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace monograph {

PsStrategy RoundRobinStrategy(int num_tasks) {
  MG_CHECK(num_tasks > 0);
  auto next = std::make_shared<int>(0);
  return [num_tasks, next](const NodeSpec&) {
    const int task = *next;
    *next = (task + 1) % num_tasks;
    return task;
  };
}

PsStrategy GreedyLoadBalancingStrategy(int num_tasks, LoadFn load) {
  MG_CHECK(num_tasks > 0);
  auto loads = std::make_shared<std::vector<double>>(static_cast<size_t>(num_tasks), 0.0);
  return [loads, load = std::move(load)](const NodeSpec& variable) {
    const double added = load(variable);
    if (std::isnan(added)) return -1;
    auto least = std::min_element(loads->begin(), loads->end());
    *least += added;
    return static_cast<int>(least - loads->begin());
  };
}

double ByteSizeLoad(const NodeSpec& variable) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (variable.attrs == nullptr) return kUnknown;
  const int64_t elements = variable.attrs->GetOr<PartialShape>("shape", PartialShape()).elements();
  const DType dtype = variable.attrs->GetOr<DType>("dtype", DT_INVALID);
  return elements < 0 ? kUnknown
                      : static_cast<double>(elements) * static_cast<double>(DTypeSize(dtype));
}

namespace {

int TaskOf(const NodeSpec& variable, int task, const ReplicaDeviceSetterOptions& options) {
  if (task >= 0 && task < options.ps_tasks) return task;
  if (options.report) {
    const std::string what = "ReplicaDeviceSetter: variable '" + std::string(variable.name) + "' ";
    options.report(InvalidArgument(
        task < 0 ? what + "cannot be placed by its strategy; one that goes by bytes needs a shape "
                          "that is fully known"
                 : what + "is put on task " + std::to_string(task) +
                       " by its strategy, but there "
                       "are " +
                       std::to_string(options.ps_tasks) + " parameter servers"));
  }
  return 0;
}

}  // namespace

Result<Scope::DeviceFunction> ReplicaDeviceSetter(const ReplicaDeviceSetterOptions& options) {
  if (options.ps_tasks < 0) {
    return InvalidArgument("ReplicaDeviceSetter: ps_tasks is " + std::to_string(options.ps_tasks));
  }
  MG_ASSIGN_OR_RETURN(const DeviceName ps, DeviceName::Parse(options.ps_device));
  MG_ASSIGN_OR_RETURN(const DeviceName worker, DeviceName::Parse(options.worker_device));
  PsStrategy strategy = options.strategy;
  if (!strategy && options.ps_tasks > 0) strategy = RoundRobinStrategy(options.ps_tasks);
  return Scope::DeviceFunction([options, ps, worker, strategy](const NodeSpec& node,
                                                               const DeviceName& requested) {
    if (!options.merge_devices && !requested.empty()) return requested.ToString();
    const bool on_ps =
        options.ps_tasks > 0 && !ps.empty() &&
        std::find(options.ps_ops.begin(), options.ps_ops.end(), node.op) != options.ps_ops.end();
    if (!on_ps) return MergeScope(requested, worker).ToString();
    DeviceName device = ps;
    // A variable that asks for a job of its own is not spread.
    if (!ps.job.empty() && (requested.job.empty() || requested.job == ps.job))
      device.task = TaskOf(node, strategy(node), options);
    return MergeScope(requested, device).ToString();
  });
}

}  // namespace monograph
