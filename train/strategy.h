// Strategies: the rows of the table in train/replication.h under the names that users of
// tf.distribute know.
//
//   Strategy strategy = MirroredStrategy(cluster.Tasks("worker"));
//   ReplicatedStep step = strategy.Replicate(root, {images, labels}, model, Adam(1e-4)).value();
//
// A strategy is the devices of this client's replicas and the options of Replicate; both may be
// changed before use.
#pragma once

#include <string>
#include <vector>

#include "client/cluster.h"
#include "train/replication.h"

namespace monograph {

struct Strategy {
  std::vector<std::string> devices;  // of this client's replicas
  ReplicateOptions options;
  // Tasks that this client has to do with (SessionOptions::device_filters); empty: all.
  std::vector<std::string> device_filters;

  // Replicas whose gradients make one update together.
  int num_replicas_in_sync() const;
  Result<ReplicatedStep> Replicate(const Scope& scope, const Outputs& batch, const ModelFn& model,
                                   const Optimizer& optimizer) const;
};

// Everything on one device.
Strategy OneDeviceStrategy(const std::string& device);
// One client; a copy of the variables beside each replica; gradients are all-reduced.
Strategy MirroredStrategy(const std::vector<std::string>& devices);
// One client; variables on one device.
Strategy CentralStorageStrategy(const std::vector<std::string>& compute_devices,
                                const std::string& parameter_device);
// A client per worker, `rank` of them this one; variables on the tasks of job ps; every worker at
// its own pace. The replica is on task `rank` of job worker. InvalidArgument if the cluster has no
// such worker or no ps.
Result<Strategy> ParameterServerStrategy(const ClusterSpec& cluster, int rank);
// A client per worker; a copy of the variables on each worker; gradients are all-reduced.
Result<Strategy> MultiWorkerMirroredStrategy(const ClusterSpec& cluster, int rank);

}  // namespace monograph
