// Master: turns signatures of a graph into registered partitions: resolve, place, prune, optimise,
// partition, register.
#pragma once

#include <atomic>
#include <chrono>
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
#include "graph/place.h"
#include "graph/placement_log.h"

namespace monograph {

class PlacedGraph;

// A signature: what is fed, fetched and run, by name.
struct Signature {
  std::vector<std::string> feeds, fetches, targets;
  friend auto operator<=>(const Signature&, const Signature&) = default;
};

// A registered signature: all that a step needs to know. Immutable but for `quick`.
struct PreparedStep {
  static constexpr int kNone = -1;

  struct FeedInfo {
    std::string name;
    DType dtype;
    PartialShape shape;
    std::vector<std::pair<int, int32_t>> routes;  // (peer, edge) of every device that reads it
  };
  struct Part {
    int peer;  // index of the task, kSelf for this process
    uint32_t handle;
    std::vector<int> awaits = {};  // peers whose tensors it needs, each once
  };
  // Where a value comes from that the signature fetches: one of the two is kNone.
  struct Value {
    int fetch = kNone;  // index among the tensors that tasks send
    int feed = kNone;   // index of the feed that it is
  };
  uint64_t session = 0;  // that prepared it: handles mean nothing to another one
  std::vector<FeedInfo> feeds;
  std::vector<Part> parts;
  int fetches = 0;                     // tensors that tasks send
  std::vector<int> fetch_from;         // the peer that sends each
  std::vector<int32_t> fetch_of_edge;  // by edge id
  std::vector<Value> values;           // in the order of the signature
  bool returns_feeds = false;          // some value is a feed
  bool keeps_feeds = false;            // a node of this process may keep one beyond the step
  bool has_collectives = false;        // parts may await those of other clients' steps
  // Its last run took so little time that a caller who wants to look up now and then may compute it
  // itself.
  std::atomic<bool> quick = false;
};

class Master {
 public:
  static constexpr size_t kIdleSignatures = 64;
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    PlacementLog log_device_placement = PlacementLog::kNone;
    std::function<void(const std::string&)> placement_sink;
    PlaceOptions place;
    OptimizeOptions optimizer;
    Evaluator evaluate;
  };

  // All outlive the master. `cluster` may be nullptr. `session` is open at every task.
  Master(const Graph& graph, uint64_t session, Worker* worker, ClusterConnection* cluster,
         Options options);
  ~Master();

  // The prepared step of a signature; made at the first call. Thread-safe; one preparation at a
  // time. Of those that nobody holds any more (no Callable, no step in flight) the kIdleSignatures
  // used last are kept; the others are deregistered at every task, and made anew if they are asked
  // for again. DeadlineExceeded if the tasks, or another preparation, take longer than `until`.
  Result<std::shared_ptr<PreparedStep>> Prepare(const Signature& signature,
                                                Time until = Time::max());
  // The partitions that Prepare registers.
  Result<PartitionedGraph> PartitionFor(const Signature& signature);
  Result<DeviceName> DeviceOf(const std::string& node) const;
  const std::vector<DeviceInfo>& devices() const { return devices_; }

 private:
  struct Entry {
    std::shared_ptr<PreparedStep> step;
    uint64_t used = 0;  // number of the Prepare that asked for it last
  };

  struct Cut;

  // The graph of a signature, cut into partitions.
  Result<Cut> CutFor(const Signature& signature) MG_REQUIRES(mutex_);
  // The placed graph, made anew if the user's has grown.
  Result<const PlacedGraph*> PlaceGraph() MG_REQUIRES(mutex_);
  // Registers the partitions with their tasks. If one refuses, those of the others are taken back.
  Result<std::shared_ptr<PreparedStep>> Register(Cut cut, Time until);
  Status RegisterParts(std::vector<Partition> partitions, Time until, PreparedStep* step);
  void Deregister(const PreparedStep& step);
  void DropIdle() MG_REQUIRES(mutex_);
  int PeerOf(const std::string& task) const;

  const Graph& graph_;
  const uint64_t session_;
  Worker* const worker_;
  ClusterConnection* const cluster_;
  const Options options_;
  std::vector<DeviceInfo> devices_;

  mutable Mutex mutex_;
  // A signature is registered, without the lock, so that others can give up waiting for that.
  bool registering_ MG_GUARDED_BY(mutex_) = false;
  CondVar registered_;
  std::unique_ptr<PlacedGraph> placed_ MG_GUARDED_BY(mutex_);
  std::map<Signature, Entry> prepared_ MG_GUARDED_BY(mutex_);
  uint64_t uses_ MG_GUARDED_BY(mutex_) = 0;
};

}  // namespace monograph
