#include "graph/device_setter.h"

#include <algorithm>
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
    auto least = std::min_element(loads->begin(), loads->end());
    *least += load(variable);
    return static_cast<int>(least - loads->begin());
  };
}

double ByteSizeLoad(const NodeSpec& variable) {
  if (variable.attrs == nullptr) return 0;
  const int64_t elements = variable.attrs->GetOr<PartialShape>("shape", PartialShape()).elements();
  const DType dtype = variable.attrs->GetOr<DType>("dtype", DT_INVALID);
  return elements < 0 ? 0 : static_cast<double>(elements) * static_cast<double>(DTypeSize(dtype));
}

Result<Scope::DeviceFunction> ReplicaDeviceSetter(const ReplicaDeviceSetterOptions& options) {
  if (options.ps_tasks < 0) {
    return InvalidArgument("ReplicaDeviceSetter: ps_tasks is " + std::to_string(options.ps_tasks));
  }
  MG_ASSIGN_OR_RETURN(const DeviceName ps, DeviceName::Parse(options.ps_device));
  MG_ASSIGN_OR_RETURN(const DeviceName worker, DeviceName::Parse(options.worker_device));
  PsStrategy strategy = options.strategy;
  if (!strategy && options.ps_tasks > 0) strategy = RoundRobinStrategy(options.ps_tasks);
  return Scope::DeviceFunction([options, ps, worker, strategy](const NodeSpec& node,
                                                               const DeviceName& wish) {
    if (!options.merge_devices && !wish.empty()) return wish.ToString();
    const bool on_ps =
        options.ps_tasks > 0 && !ps.empty() &&
        std::find(options.ps_ops.begin(), options.ps_ops.end(), node.op) != options.ps_ops.end();
    if (!on_ps) return MergeScope(wish, worker).ToString();
    DeviceName device = ps;
    // A variable that asks for a job of its own is not spread.
    if (!ps.job.empty() && (wish.job.empty() || wish.job == ps.job)) device.task = strategy(node);
    return MergeScope(wish, device).ToString();
  });
}

}  // namespace monograph
