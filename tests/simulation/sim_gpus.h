// A cluster whose tasks have the GPUs of a world (tests/simulation/gpu_world.h), and the nodes that
// its graphs are made of. Their kernels touch no memory, so tensors may be as large as one likes.
//
// Linked in place of executor/gpu/plugin.cc. The GPUs have links as those of NCCL:
// "simulated/<node>/<card>". Segments are launched node by node; none is captured as a graph.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/scope.h"
#include "ops/collective/collective.h"
#include "tests/simulation/gpu_world.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/sim_cluster.h"

namespace monograph::simulation {

class GpuCluster {
 public:
  // Tasks of the job worker. All run when it returns.
  GpuCluster(GpuTopology topology, std::function<void(const std::string&)> fault);

  const ClusterSpec& spec() const { return cluster_.spec(); }
  GpuWorld& world() { return *world_; }
  const GpuWorld& world() const { return *world_; }
  Network& network() { return network_; }
  SimCluster& cluster() { return cluster_; }
  // "/job:worker/replica:0/task:0/device:GPU:0", and without the device.
  std::string device(int gpu) const;
  std::string task(int task) const { return "/job:worker/replica:0/task:" + std::to_string(task); }
  int task_of(int gpu) const;
  // The machine or process of the task ends, with its GPUs; or it is started anew.
  void Kill(int task, bool whole_machine);
  void Restart(int task);

 private:
  const std::shared_ptr<GpuWorld> world_;  // drivers may live longer than their devices
  Network network_;
  const LeftOut below_{&network_, sizeof network_};
  SimCluster cluster_;
};

// Builds a graph for GPUs: nodes that compute for given times, and collectives that are checked.
class GpuGraph {
 public:
  GpuGraph(GpuCluster* cluster, Graph* graph) : cluster_(*cluster), root_(graph) {}

  // A tensor of so many floats that a kernel of `gpu` makes in this time, after `after`: rank
  // `rank`'s value of a collective.
  Output Make(int gpu, int collective, int rank, int tensor, int64_t elements,
              std::chrono::nanoseconds takes, const std::vector<Operation>& after);
  // A kernel that reads what came of a collective, of these ranks' values one after the other.
  Operation Use(int gpu, const Output& value, int tensor,
                const std::vector<std::pair<int, int>>& ranks, int collective,
                std::chrono::nanoseconds takes);
  const Scope& root() const { return root_; }
  // What every step is to be fed.
  const std::vector<std::pair<Output, Tensor>>& feeds() const { return feeds_; }

 private:
  GpuCluster& cluster_;
  Scope root_;
  std::map<int, Output> values_;  // by GPU: what makes a tensor no constant
  std::vector<std::pair<Output, Tensor>> feeds_;
};

}  // namespace monograph::simulation
