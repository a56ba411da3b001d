#include "train/device_setter.h"

#include <utility>

#include "base/device_name.h"

namespace monograph {

Result<Scope::DeviceFunction> ReplicaDeviceSetter(const ClusterSpec& cluster,
                                                  ReplicaDeviceSetterOptions options) {
  MG_ASSIGN_OR_RETURN(const DeviceName ps, DeviceName::Parse(options.ps_device));
  MG_ASSIGN_OR_RETURN(const DeviceName worker, DeviceName::Parse(options.worker_device));
  if (!worker.job.empty() && worker.task >= 0)
    MG_RETURN_IF_ERROR(cluster.Address(worker.job, worker.task).status());
  options.ps_tasks = ps.job.empty() ? 0 : cluster.num_tasks(ps.job);
  return ReplicaDeviceSetter(options);
}

}  // namespace monograph
