#include "train/strategy.h"

namespace monograph {
namespace {

// This client's replica on its worker, one of all.
Result<Strategy> OnWorker(const ClusterSpec& cluster, int rank) {
  const std::vector<std::string> workers = cluster.Tasks("worker");
  if (rank < 0 || static_cast<size_t>(rank) >= workers.size()) {
    return InvalidArgument("there is no worker " + std::to_string(rank) + ": the cluster has " +
                           std::to_string(workers.size()));
  }
  Strategy strategy;
  strategy.devices = {workers[static_cast<size_t>(rank)]};
  strategy.options.replication = Replication::kBetweenGraph;
  strategy.options.rank = rank;
  strategy.options.num_workers = static_cast<int>(workers.size());
  strategy.options.worker_names = workers;
  return strategy;
}

}  // namespace

int Strategy::num_replicas_in_sync() const {
  const int here = static_cast<int>(devices.size());
  if (options.replication == Replication::kInGraph) return options.async ? 1 : here;
  return options.async ? here : here * options.num_workers;
}

Result<ReplicatedStep> Strategy::Replicate(const Scope& scope, const Outputs& batch,
                                           const ModelFn& model, const Optimizer& optimizer) const {
  return monograph::Replicate(scope, devices, batch, model, optimizer, options);
}

Strategy OneDeviceStrategy(const std::string& device) {
  Strategy strategy;
  strategy.devices = {device};
  strategy.options.variable_update = VariableUpdate::kCentral;
  return strategy;
}

Strategy MirroredStrategy(const std::vector<std::string>& devices) {
  Strategy strategy;
  strategy.devices = devices;
  strategy.options.variable_update = VariableUpdate::kReplicated;
  return strategy;
}

Strategy CentralStorageStrategy(const std::vector<std::string>& compute_devices,
                                const std::string& parameter_device) {
  Strategy strategy;
  strategy.devices = compute_devices;
  strategy.options.variable_update = VariableUpdate::kCentral;
  strategy.options.variable_devices = {parameter_device};
  return strategy;
}

Result<Strategy> ParameterServerStrategy(const ClusterSpec& cluster, int rank) {
  MG_ASSIGN_OR_RETURN(Strategy strategy, OnWorker(cluster, rank));
  strategy.options.async = true;
  strategy.options.variable_devices = cluster.Tasks("ps");
  if (strategy.options.variable_devices.empty())
    return InvalidArgument("ParameterServerStrategy needs a job 'ps' in the cluster");
  strategy.device_filters = {"/job:ps", strategy.devices[0]};
  return strategy;
}

Result<Strategy> MultiWorkerMirroredStrategy(const ClusterSpec& cluster, int rank) {
  MG_ASSIGN_OR_RETURN(Strategy strategy, OnWorker(cluster, rank));
  strategy.options.variable_update = VariableUpdate::kReplicated;
  strategy.device_filters = {"/job:worker"};
  return strategy;
}

}  // namespace monograph
