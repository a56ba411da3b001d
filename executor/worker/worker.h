// Worker: one task's runtime. Holds the task's devices and resources, the sessions that clients
// opened, their registered graphs and running steps, and speaks the data plane
// (executor/worker/step_message.h). A daemon has one (executor/worker/server.h), and a client
// process has one for the part of the graph that runs in it.
//
// Each session has a data plane of its own, a Transport with a thread that drives it, which is made
// and closed with the session.
//
// Threads. Every method may be called from any thread. Messages arrive on the thread that drives
// the session's transport: cheap kernels run there at once, others on the inter-op threads.
//
// A step's life here: run-step names a registered graph; the step takes the tensors that came
// before it, runs, pushes what crosses to other tasks as soon as it exists, and ends with one
// step-done to the client. An abort, a failure or CloseSession ends it early; what arrives for it
// afterwards is dropped and counted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/device_info.h"
#include "base/device_name.h"
#include "base/status.h"
#include "base/tensor.h"
#include "executor/gpu_options.h"
#include "executor/worker/step_ids.h"
#include "executor/worker/step_sight.h"
#include "graph/graph.h"
#include "transport/transport.h"

namespace monograph {

class KernelRegistry;
class ResourceManager;
class StepTrace;

inline constexpr int kSelf = -1;  // peer index: this worker itself

// A task that takes part in a session.
struct PeerSpec {
  std::string task;               // "/job:worker/replica:0/task:1"
  std::string transport_address;  // empty in a session without other tasks
  uint64_t incarnation = 0;
  std::vector<std::pair<std::string, std::string>> links = {};  // its devices that have one
};

// What a session's own client, if it lives in this process, hears of its steps. Called on whichever
// thread finds out; must not block.
class StepClient {
 public:
  virtual ~StepClient() = default;
  // A tensor for the client's device arrived: a fetched value, which it takes, or drops if the step
  // is over. Returns false if the edge is not a fetch (then it belongs to the client's own
  // partition).
  virtual bool OnFetch(uint64_t step, int32_t edge, Tensor& tensor) = 0;
  // Peer `peer` (index in the session, or kSelf) has ended its part of the step.
  virtual void OnStepDone(uint64_t step, int peer, const Status& status) = 0;
  // A tensor of the step was lost on its way to or from this process.
  virtual void OnStepFailed(uint64_t step, const Status& status) = 0;
  // Nothing has come from the peer for too long, although it was asked. On the watching thread;
  // must not block for more than a tenth of a second.
  virtual void OnPeerLost(int /*peer*/, const Status& /*why*/) {}
  // The steps in flight, and what each awaits from peers; what it cannot name in `what` is reported
  // back to OnAwaitedLost.
  virtual std::vector<StepSight> InFlight() { return {}; }
  // What a step awaits never comes. On the watching thread.
  virtual void OnAwaitedLost(const StepMissing& /*missing*/) {}
  // kOver if all that the client itself sends for the step has been sent; kRunning if feeds of a
  // partial run are missing.
  virtual PartState ClientPart(uint64_t /*step*/) { return PartState::kUnknown; }
};

struct WorkerOptions {
  DeviceName task;                  // job, replica, task
  const OpRegistry* ops = nullptr;  // outlives the worker
  const KernelRegistry* kernels = nullptr;
  int cpu_devices = 1;
  GpuOptions gpu = {.device_count = 0};  // none unless asked for
  int inter_op_parallelism_threads = 0;  // 0: one per core
  int intra_op_parallelism_threads = 0;
  // Makes the data plane of each session; empty: none, for sessions that stay in this process.
  TransportFactory make_transport = {};
  // Rewrites a task's graph before kernels are made (fusion); supplied by the layer that knows the
  // ops. Empty: none.
  std::function<Result<Graph>(Graph)> rewrite = {};
  // How long a session that is closed waits for parts of collectives on their way to or from tasks
  // that are there: the last sum of a job may cross a slow link.
  std::chrono::milliseconds parts_deadline{10'000};
};

struct WorkerStats {
  int sessions = 0, graphs = 0, running_steps = 0;
  int64_t messages_leaving = 0;  // tensors and reports that peers have not taken yet
  uint64_t steps_done = 0, steps_failed = 0, messages_dropped = 0;
  // Of its GPUs; fallbacks: graphs that could not be launched, whose nodes were, one by one; nodes:
  // all that were launched one by one.
  uint64_t cuda_graphs_captured = 0, cuda_graphs_replayed = 0, cuda_graph_fallbacks = 0;
  uint64_t cuda_nodes_launched = 0;
};

class Worker {
 public:
  // How long a session that is closed waits for its kernels: ours stop at once; a library call that
  // cannot be cut short is left behind.
  static constexpr std::chrono::milliseconds kCloseDeadline{2000};
  // Upper bound on WorkerOptions::parts_deadline when the client was lost.
  static constexpr std::chrono::milliseconds kPartsDeadlineOfLost{1000};

  static Result<std::unique_ptr<Worker>> Create(WorkerOptions options);
  ~Worker();  // closes every session

  const std::string& task() const;  // "/job:worker/replica:0/task:1"
  const std::vector<DeviceInfo>& devices() const;
  // The kernels that the plug-in of its GPUs brings; nullptr if it has none.
  const KernelRegistry* gpu_kernels() const;
  uint64_t incarnation() const;  // random, never 0
  ResourceManager& resources() const;
  WorkerStats stats() const;
  // Of the data planes of all sessions, also of those that have ended.
  TransportStats transport_stats() const;

  // A session is opened in two rounds over all its tasks, since each must know the address of every
  // other one before it can connect.
  //
  // First: makes the session's data plane. Returns the address by which peers reach this task in
  // this session, empty without a data plane. `session` is the client's nonce; AlreadyExists if it
  // is in use. `client`: hears of the steps, if this process is the session's client.
  // `tensorflow_random_streams`, `container`: as in SessionOptions.
  Result<std::string> CreateSession(uint64_t session, StepClient* client = nullptr,
                                    bool tensorflow_random_streams = false,
                                    const std::string& container = "");
  // Second, once: `peers` lists every other task of the session, the client's included;
  // `client_peer` is the client's index, or kSelf. `self_index` is this task's index in the
  // client's own list: its step-done messages carry it. Only now the session is known to what
  // follows below.
  Status ConnectSession(uint64_t session, const std::vector<PeerSpec>& peers, int client_peer,
                        int self_index);
  // Lets parts of collectives leave (parts_deadline), aborts its steps, waits for running kernels
  // (kCloseDeadline; what runs longer is a call of a library that cannot be cut, and ends without
  // its session), drops its graphs and closes its data plane, which takes at most a second more, or
  // ten if its last bytes still move.
  // NotFound if there is none. `why`: how its client was lost, which others that meet it in
  // collectives are told; OK if it closes the session itself.
  Status CloseSession(uint64_t session, const Status& why = Status());
  // Its data plane; nullptr if it has none. Usable until CloseSession.
  Transport* transport(uint64_t session) const;
  // The way to each peer, in their order: lanes and expected speed (Transport::Describe).
  std::vector<std::string> DescribePeers(uint64_t session) const;
  // A peer is gone: its endpoint closes, pending transfers with it end, and so do the steps that
  // exchange tensors with it. Returns the address by which peers reach this task from now on: a new
  // one where the lost one may have left what holds up the others (Transport::Renew). NotFound if
  // the session, or the peer in it, is not known.
  Result<std::string> DropPeer(uint64_t session, const std::string& task);
  // These peers, of the session's, have these transport addresses now, or this task has a new one.
  // All of them are tried; the first failure.
  Status ReconnectPeers(uint64_t session, const std::vector<PeerSpec>& peers);
  // What this task's part of a step is inside, "node 'product' (MatMul)"; "" if that is no kernel.
  std::string InsideOf(uint64_t session, uint64_t step) const;
  // When it returns, the session's client hears no more of peers and steps that are watched.
  void StopWatching(uint64_t session);

  // Compiles this task's partition. The handle is valid in the session until it closes or
  // DeregisterGraph.
  Result<uint32_t> RegisterGraph(uint64_t session, Graph graph);
  Status DeregisterGraph(uint64_t session, uint32_t handle);

  // The client's side of a step; `peer` as in OnStepDone. Each sends one message, which `peer`
  // obeys when it comes, or is obeyed here at once for kSelf. SendTensor may come before
  // SendRunStep. `caller_computes`: for kSelf, the calling thread also runs expensive kernels. Of a
  // row, at most kMaxStepsInRow, the end is reported, and it is aborted, by the number of the last
  // one.
  void SendTensor(uint64_t session, int peer, uint64_t step, int32_t edge, Tensor tensor);
  void SendRunStep(uint64_t session, int peer, uint32_t handle, const StepIds& steps, bool trace,
                   bool caller_computes);
  void SendAbortStep(uint64_t session, int peer, uint64_t step, const Status& status);

  // What a traced step recorded here, once; nullptr if there is nothing. The last few traced steps
  // are kept.
  std::shared_ptr<StepTrace> TakeTrace(uint64_t session, uint64_t step);

  // From now on run-step is refused with Unavailable; running steps go on.
  void Drain();
  // "session 3: step 7 (it waits for node 'product' (MatMul), which computes)", one per session
  // whose steps run.
  std::vector<std::string> RunningSteps() const;

  // Drops resources in `containers` (all if empty).
  void Reset(const std::vector<std::string>& containers);

 private:
  friend struct RegisteredGraph;
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph
