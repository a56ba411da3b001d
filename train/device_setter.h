// graph/device_setter.h for a cluster: as many parameter servers as it has.
#pragma once

#include "client/cluster.h"
#include "graph/device_setter.h"

namespace monograph {

// `options.ps_tasks` is the number of tasks of the cluster's job that `options.ps_device` names, 0
// if it has no such job. NotFound if `options.worker_device` names a task that the cluster lacks.
Result<Scope::DeviceFunction> ReplicaDeviceSetter(const ClusterSpec& cluster,
                                                  ReplicaDeviceSetterOptions options = {});

}  // namespace monograph
