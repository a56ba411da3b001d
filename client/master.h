// Master: turns signatures of a graph into registered partitions: resolve, place, prune, optimise,
// partition, register.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/device_info.h"
#include "base/mutex.h"
#include "client/cluster_connection.h"
#include "executor/worker/worker.h"
#include "graph/graph.h"
#include "graph/optimize.h"
#include "graph/partition.h"
#include "graph/placement_log.h"

namespace monograph {

// A signature: what is fed, fetched and run, by name.
struct Signature {
  std::vector<std::string> feeds, fetches, targets;
  friend auto operator<=>(const Signature&, const Signature&) = default;
};

// A registered signature: all that a step needs to know. Immutable.
struct PreparedStep {
  struct FeedInfo {
    std::string name;
    DType dtype;
    PartialShape shape;
    std::vector<std::pair<int, int32_t>> routes;  // (peer, edge) of every device that reads it
  };
  struct Part {
    int peer;  // index of the task, kSelf for this process
    uint32_t handle;
  };
  uint64_t session = 0;  // that prepared it: handles mean nothing to another one
  std::vector<FeedInfo> feeds;
  std::vector<Part> parts;
  std::vector<int32_t> fetch_of_edge;  // edge id to index in distinct fetches; -1: no fetch
  int distinct_fetches = 0;
  std::vector<int> fetch_index;    // requested fetch to distinct fetch, or ...
  std::vector<int> fetch_of_feed;  // ... to the feed that it simply is; -1: none
};

class Master {
 public:
  static constexpr size_t kIdleSignatures = 64;

  struct Options {
    PlacementLog log_device_placement = PlacementLog::kNone;
    std::function<void(const std::string&)> placement_sink;
    bool allow_soft_placement = false;
    OptimizeOptions optimizer;
    std::function<bool(const std::string& op, const Attrs& attrs, DeviceType type)> has_kernel;
    Evaluator evaluate;
  };

  // All outlive the master. `cluster` may be nullptr. `session` is open at every task.
  Master(const Graph& graph, uint64_t session, Worker* worker, ClusterConnection* cluster,
         Options options);

  // The prepared step of a signature; made at the first call. Thread-safe; one preparation at a
  // time. Of those that nobody holds any more (no Callable, no step in flight) the kIdleSignatures
  // used last are kept; the others are deregistered at every task, and made anew if they are asked
  // for again.
  Result<std::shared_ptr<PreparedStep>> Prepare(const Signature& signature);
  // The partitions that Prepare registers.
  Result<PartitionedGraph> PartitionFor(const Signature& signature);
  Result<DeviceName> DeviceOf(const std::string& node) const;
  const std::vector<DeviceInfo>& devices() const { return devices_; }

 private:
  struct Entry {
    std::shared_ptr<PreparedStep> step;
    uint64_t used = 0;  // number of the Prepare that asked for it last
  };

  // A call that was inlined before placing: which endpoints replace its outputs, and which nodes
  // have run when the call would have.
  struct InlinedCall {
    std::vector<Endpoint> outputs;
    std::vector<NodeId> done;
  };

  Status PlaceGraph() MG_REQUIRES(mutex_);
  // By the names that the user's graph has.
  Result<Endpoint> FindTensor(const std::string& name) const MG_REQUIRES(mutex_);
  Result<std::vector<NodeId>> FindTarget(const std::string& name) const MG_REQUIRES(mutex_);
  // Registers the parts with their tasks and fills step->parts; what is registered when it fails is
  // in there too.
  Status Register(std::vector<Partition> partitions, PreparedStep* step);
  void Deregister(const PreparedStep& step);
  void DropIdle() MG_REQUIRES(mutex_);
  int PeerOf(const std::string& task) const;
  Result<PartitionedGraph> Cut(const Signature& signature, std::vector<int>* fetch_index,
                               std::vector<int>* fetch_of_feed,
                               std::vector<PreparedStep::FeedInfo>* feeds) MG_REQUIRES(mutex_);

  const Graph& graph_;
  const uint64_t session_;
  Worker* const worker_;
  ClusterConnection* const cluster_;
  const Options options_;
  std::vector<DeviceInfo> devices_;

  mutable Mutex mutex_;
  std::unique_ptr<Graph> placed_ MG_GUARDED_BY(mutex_);
  int placed_nodes_ MG_GUARDED_BY(mutex_) = -1;  // of graph_, when it was placed
  std::map<std::string, InlinedCall> inlined_ MG_GUARDED_BY(mutex_);
  std::map<Signature, Entry> prepared_ MG_GUARDED_BY(mutex_);
  uint64_t uses_ MG_GUARDED_BY(mutex_) = 0;
};

}  // namespace monograph
