// Session: runs parts of a graph, in this process or on a cluster of executor daemons.
//
//   Graph graph = NewGraph();
//   Scope root(&graph);
//   Output x = Placeholder(root, DT_FLOAT, {-1, 784});
//   ...
//   auto session = Session::Connect(cluster, graph, {.log_device_placement = PlacementLog::kSummary});
//   if (!session.ok()) ...
//   auto fetched = (*session)->Run({{x, batch}}, {loss}, {train});
//
// The first Run of a combination of feeds, fetches and targets prepares it: it resolves their
// names, places the graph, prunes, optimises and partitions it, and registers the parts with the
// daemons. Each later one sends one small message to each daemon that takes part. Feeds go from the
// caller's memory to the task that consumes them, fetches come straight back.
//
// Threads. Every method may be called from any thread; several steps may run at once (at most
// kMaxStepsInFlight). The graph must outlive the session and may grow, but not while a signature is
// being prepared (MakeCallable, and Run and RunByName, which begin with it); nodes keep their
// devices.
//
// Errors. Run returns the root cause, with node, device and task. A lost task is Unavailable and
// names the task; runs that need it fail at once from then on, others go on.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/device_info.h"
#include "base/status.h"
#include "base/tensor.h"
#include "client/cluster.h"
#include "executor/gpu_options.h"
#include "graph/optimize.h"
#include "graph/placement_log.h"
#include "graph/scope.h"
#include "transport/control/key_ring.h"
#include "transport/transports.h"

namespace monograph {

struct TaskStatus;

struct SessionOptions {
  PlacementLog log_device_placement = PlacementLog::kNone;
  // Gets the text of log_device_placement; empty: standard output.
  std::function<void(const std::string&)> placement_sink = {};
  bool allow_soft_placement = false;
  // Local sessions: devices by type, {kCpu, 2}; of GPUs at most so many. Those of daemons are set
  // where the daemons start.
  std::map<DeviceType, int> device_count = {};
  // Local sessions: how this process uses its GPUs.
  GpuOptions gpu = {};
  int inter_op_parallelism_threads = 0;  // of this process; 0: one per core
  int intra_op_parallelism_threads = 0;
  // Of each Run, unless its RunOptions say otherwise, and of MakeCallable and PartialRunSetup; 0:
  // none (a lost task ends a step all the same).
  std::chrono::milliseconds operation_timeout{0};
  // Partial device names; other tasks are neither waited for nor used. Empty: all.
  std::vector<std::string> device_filters = {};
  OptimizeOptions optimizer = {};
  // Random ops whose attributes seed and seed2 are not both 0 draw TensorFlow's numbers, on CPUs:
  // each goes on in its stream as long as the session is open, as TensorFlow's kernels do. Without
  // it, and without seeds, numbers follow from seeds, the node's name and the step's number.
  bool tensorflow_random_streams = false;
  // A container that is this session's alone: what it holds is dropped on every task when the
  // session ends, or its client is lost. Empty: none. Nodes name it by their attribute.
  std::string container = {};
  // How long Connect waits for daemons that are not up yet.
  std::chrono::milliseconds start_timeout{30000};
  std::optional<control::KeyRing> key = {};
  // Data plane, of a session on a cluster.
  TransportOptions transport = {};
};

struct RunOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  bool trace = false;
  // The step's number in the session, on which random ops depend; it must be larger than all
  // before. 0: the next one.
  uint64_t step = 0;
  // Runs the step so many times in a row; the results are those of the last time. The client sends
  // one message per task for up to 16 steps, and each task goes on by itself. RunCallable takes the
  // feeds once, for all, or those of the first step, then those of the second, ... A failure ends
  // the row. Not with trace, nor in RunAsync. `timeout` is of all together.
  int64_t steps = 1;
  // Between the numbers of the steps of a row.
  uint64_t step_stride = 1;
  // Asked every 50 ms by the thread that waits for the step, without locks; once it is true the
  // step ends with Cancelled, and the session goes on. Not in RunAsync.
  std::function<bool()> cancelled = {};
  // The memory of the feeds belongs to somebody who may write to it after the run. What the step
  // may keep in this process, in a variable or a queue, is copied first.
  bool borrowed_feeds = false;
};
struct RunMetadata {
  uint64_t step_id = 0;
  std::string
      trace_json;  // Chrome's trace format: every task, op, send and recv of the step on one clock
  std::string trace_error;  // which tasks' records could not be fetched, and why; empty: the trace
                            // is complete
};

using Feed = std::pair<Output, Tensor>;

// A prepared signature; cheap to copy, valid while the session that made it is open. While one
// exists its signature stays prepared at every task.
class Callable {
 public:
  Callable() = default;

 private:
  friend class Session;
  std::shared_ptr<struct PreparedStep> prepared_;
};

// A step that is run in parts; cheap to copy, valid while the session that began it is open.
class PartialRunHandle {
 public:
  PartialRunHandle() = default;

 private:
  friend class Session;
  std::shared_ptr<struct PartialStep> step_;
};

class Session {
 public:
  // Everything runs in this process, on /job:localhost/replica:0/task:0.
  static Result<std::unique_ptr<Session>> Local(const Graph& graph, SessionOptions options = {});
  // Waits for every task of the cluster (that device_filters let through), at most start_timeout;
  // Unavailable then lists those that are missing and why. This process is
  // /job:client/replica:0/task:0.
  static Result<std::unique_ptr<Session>> Connect(const ClusterSpec& cluster, const Graph& graph,
                                                  SessionOptions options = {});
  ~Session();  // Close

  // Values of `fetches`, in order, after `targets` have run too. InvalidArgument names a feed that
  // is missing, misshaped or of another type.
  Result<std::vector<Tensor>> Run(const std::vector<Feed>& feeds,
                                  const std::vector<Output>& fetches,
                                  const std::vector<Operation>& targets = {},
                                  const RunOptions& options = {}, RunMetadata* metadata = nullptr);
  // The same by name: "x:0", "x" (output 0), targets "train". NotFound gives near names.
  Result<std::vector<Tensor>> RunByName(const std::vector<std::pair<std::string, Tensor>>& feeds,
                                        const std::vector<std::string>& fetches,
                                        const std::vector<std::string>& targets = {},
                                        const RunOptions& options = {},
                                        RunMetadata* metadata = nullptr);

  // Prepares a signature once; RunCallable then takes the feeds in the order given here.
  Result<Callable> MakeCallable(const std::vector<Output>& feeds,
                                const std::vector<Output>& fetches,
                                const std::vector<Operation>& targets = {});
  Result<Callable> MakeCallableByName(const std::vector<std::string>& feeds,
                                      const std::vector<std::string>& fetches,
                                      const std::vector<std::string>& targets = {});
  Result<std::vector<Tensor>> RunCallable(const Callable& callable, std::span<const Tensor> feeds,
                                          const RunOptions& options = {},
                                          RunMetadata* metadata = nullptr);

  // Starts a step and returns; `done` runs once, on a thread of the runtime or, if the step cannot
  // start or ends at once, inside this call; it must not block, nor call this. Waits for a free
  // slot if kMaxStepsInFlight steps are in flight.
  using StepDone = std::function<void(Result<std::vector<Tensor>>)>;
  void RunAsync(const Callable& callable, std::span<const Tensor> feeds, StepDone done,
                const RunOptions& options = {});

  // Begins a step that takes its feeds and gives its fetches in parts, by names as in RunByName.
  // Each node runs once, as soon as what it needs is there. ResourceExhausted if kMostPartialRuns
  // of the session have not ended.
  static constexpr int kMostPartialRuns = 16;
  Result<PartialRunHandle> PartialRunSetup(const std::vector<std::string>& feeds,
                                           const std::vector<std::string>& fetches,
                                           const std::vector<std::string>& targets = {});
  // Feeds some of the step's feeds and returns some of its fetches, each of them once in the step.
  // InvalidArgument, and the step goes on, for a fetch that needs what has not been fed. The call
  // that leaves nothing to feed or fetch waits for the step's end. A call that fails because the
  // step does, passes its deadline or is cancelled ends it. One call at a time. Of `options`
  // timeout, cancelled and borrowed_feeds count, for this call.
  Result<std::vector<Tensor>> PartialRun(const PartialRunHandle& handle,
                                         const std::vector<std::pair<std::string, Tensor>>& feeds,
                                         const std::vector<std::string>& fetches,
                                         const RunOptions& options = {});
  // Ends it, if it has not ended, with Cancelled.
  void CancelPartialRun(const PartialRunHandle& handle);

  // Every device that the session may use.
  const std::vector<DeviceInfo>& devices() const;
  // Where the node went; NotFound before a run placed it.
  Result<DeviceName> DeviceOf(const Operation& operation) const;
  // The placed graph cut for one signature, by names as in RunByName:
  // "/job:worker/replica:0/task:1" and its part.
  Result<std::vector<std::pair<std::string, Graph>>> PartitionsByName(
      const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
      const std::vector<std::string>& targets);

  // What every task of the session says of itself now: this process first, then the daemons. Bytes
  // and messages are those of the data plane, of all sessions together
  // (executor/worker/task_status.h).
  Result<std::vector<TaskStatus>> Tasks();
  // The same where some may not answer: of these the failure, which names the task. The session's
  // own failure, alone, once it is closed.
  std::vector<Result<TaskStatus>> EachTask();

  // Drops variables and other resources of the containers (all if empty) on every task.
  Status Reset(const std::vector<std::string>& containers = {});
  // Cancels running steps and frees what daemons hold of this session; variables stay. Idempotent;
  // takes bounded time also when tasks are gone.
  Status Close();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph
