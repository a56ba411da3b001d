// The inside of Worker: sessions.cc opens and closes them and registers their graphs, steps.cc runs
// and ends their steps, messages.cc is their data plane, watch.cc watches peers and steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/free_list.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "executor/borrowed.h"
#include "executor/collective/collective.h"
#include "executor/device.h"
#include "executor/plan/plan.h"
#include "executor/resource_manager.h"
#include "executor/step/step_executor.h"
#include "executor/thread_pools.h"
#include "executor/worker/session.h"
#include "executor/worker/step_message.h"
#include "executor/worker/worker.h"

namespace monograph {

class Worker::Impl : public CollectiveHost {
 public:
  explicit Impl(WorkerOptions options)
      : options_(std::move(options)), task_(options_.task.TaskName()) {}
  ~Impl() override;

  // ---- sessions.cc
  Status Start();
  void Shutdown();
  Result<std::string> CreateSession(uint64_t id, StepClient* client, bool tensorflow_random_streams,
                                    const std::string& container);
  Status ConnectSession(uint64_t id, const std::vector<PeerSpec>& peers, int client_peer,
                        int self_index);
  // `kernels`: how long it waits for those; `parts`: for parts of collectives on their way.
  Status CloseSession(uint64_t id, std::chrono::milliseconds kernels,
                      std::chrono::milliseconds parts, const Status& why);
  Result<uint32_t> RegisterGraph(uint64_t id, Graph graph);
  Status DeregisterGraph(uint64_t id, uint32_t handle);
  // The session if it is connected and open, or nullptr.
  std::shared_ptr<WorkerSession> FindSession(uint64_t id) const {
    ReaderLock lock(sessions_mutex_);
    auto it = sessions_.find(id);
    const bool usable =
        it != sessions_.end() && it->second->state == WorkerSession::State::kConnected;
    return usable ? it->second : nullptr;
  }
  const std::string& task() const override { return task_; }
  std::vector<std::string> TasksOfJob(uint64_t session, std::string_view job) const override;
  std::vector<uint64_t> HostsOf(uint64_t session,
                                const std::vector<std::string>& tasks) const override;
  std::string LinkOf(uint64_t session, const std::string& device) const override;

  // ---- steps.cc
  // What a run-step asks for.
  struct Request {
    uint32_t handle = 0;
    uint64_t step = 0;
    StepIds row;  // the row of steps that it belongs to; a row of one if it stands alone
    bool trace = false;
    // The row's graph if this step continues a row; nullptr for a run-step from the client.
    std::shared_ptr<RegisteredGraph> graph = nullptr;
  };
  void RunStep(const std::shared_ptr<WorkerSession>& session, Request request, bool caller_computes)
      MG_EXCLUDES(session->mutex);
  void AbortHere(WorkerSession& session, uint64_t step, const Status& status)
      MG_EXCLUDES(session.mutex);

  // The process is about to end: a library crashed while it `computed`. Clients elsewhere whose
  // steps run here are told.
  void Crashes(const std::string& computed);

  // ---- messages.cc
  // `iteration`, here and below: as StepSink::OnSend's.
  void SendTensor(WorkerSession& session, int peer, uint64_t step, int32_t edge,
                  const Tensor& tensor, uint64_t iteration, bool on_gpu = false)
      MG_EXCLUDES(session.mutex);
  // The part of the tensor that begins at byte `offset`.
  void SendPart(WorkerSession& session, int peer, uint64_t step, int32_t edge, const Tensor& tensor,
                size_t offset) MG_EXCLUDES(session.mutex);
  // `tensor`: of a message of a tensor; `on_gpu`: as Payload's.
  void SendMessage(WorkerSession& session, int peer, StepMessage message,
                   const Tensor* tensor = nullptr, bool on_gpu = false) MG_EXCLUDES(session.mutex);
  // A tensor for this process is here: for the client, or for a step.
  void Accept(WorkerSession& session, uint64_t step, int32_t edge, Tensor tensor,
              uint64_t iteration) MG_EXCLUDES(session.mutex);
  // A tensor for a step is here; it waits in the step's slot until the step runs.
  void Deliver(WorkerSession& session, uint64_t step, int32_t edge, Tensor tensor,
               uint64_t iteration) MG_EXCLUDES(session.mutex);
  // Fails the step because a message to or from it was lost.
  // The step, or nullptr if it does not run now.
  std::shared_ptr<Step> RunningStep(WorkerSession& session, uint64_t step) const
      MG_EXCLUDES(session.mutex);
  // "'x:0' (edge 2) from TASK" of what a step that runs here awaits, else "edge 2".
  std::string DescribeAwaited(WorkerSession& session, uint64_t step, int32_t edge) const;
  void FailHere(WorkerSession& session, uint64_t step, const Status& status)
      MG_EXCLUDES(session.mutex);
  // The handler of a session's data plane, which calls the next two.
  std::unique_ptr<MessageHandler> MakePort(WorkerSession* session);
  // `for_gpus`: as Transport's OnGpuMessage.
  PayloadSink OnMessage(WorkerSession& session, std::string_view header, size_t payload_bytes,
                        bool for_gpus);
  void OnDelivered(WorkerSession& session, std::string_view header, Payload payload);
  Status SendCollective(uint64_t session, std::string_view task, StepMessage message,
                        Payload payload, Done done) override;
  void CountDropped(const char* what) {
    dropped_.fetch_add(1, std::memory_order_relaxed);  // a counter
    if (LogEnabled(LogLevel::kDebug)) LogDebug(task_ + " dropped " + what);
  }

  // ---- watch.cc
  // A step has begun: it is watched, and so are its peers. Costs a load where they are already.
  void WakeWatch() MG_EXCLUDES(watch_mutex_) {
    if (watch_asleep_.load(std::memory_order_relaxed)) StartWatch();
  }
  void OnPing(WorkerSession& session, const StepMessage& message) MG_EXCLUDES(session.mutex);
  // "it waits for A; for B; and for 4 more": what keeps a step that runs here; "" if it is not
  // known.
  std::string DescribeWaits(WorkerSession& session, uint64_t step) const MG_EXCLUDES(session.mutex);
  // "step 7 (it waits for ...), step 8 (...)": all that run here; "" if none does.
  std::string DescribeRunning(WorkerSession& session) const MG_EXCLUDES(session.mutex);
  // From now on the peer is lost to this task: steps that exchange tensors with it fail with `why`,
  // those that run and those to come.
  void LosePeer(WorkerSession& session, int peer, const Status& why) MG_EXCLUDES(session.mutex);
  void StopWatching(WorkerSession& session) MG_EXCLUDES(watch_mutex_);
  void EndWatch() MG_EXCLUDES(watch_mutex_);

  WorkerOptions options_;
  const std::string task_;
  const uint64_t incarnation_ = RandomNonZero();
  std::unique_ptr<ThreadPools> pools_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<DeviceInfo> device_infos_;
  const KernelRegistry* gpu_kernels_ = nullptr;  // of the plug-in, if there are GPUs
  ResourceManager resources_;
  std::unique_ptr<CollectiveManager> collectives_;

  mutable SharedMutex sessions_mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<WorkerSession>> sessions_
      MG_GUARDED_BY(sessions_mutex_);
  // Those that close, whose data planes still count; and what the closed ones have counted.
  std::vector<std::shared_ptr<WorkerSession>> closing_ MG_GUARDED_BY(sessions_mutex_);
  TransportStats moved_before_ MG_GUARDED_BY(sessions_mutex_);

  // Ends with Shutdown.
  std::optional<CrashListener> crash_listener_;

  // Sessions that were given up while a kernel of them runs. Default order: seldom.
  std::atomic<int> left_ = 0;
  // Counters for statistics: relaxed, nothing else is read by them.
  std::atomic<uint64_t> dropped_{0}, steps_done_{0}, steps_failed_{0};
  std::atomic<int64_t> sending_{0};    // messages whose Send has not completed
  std::atomic<bool> draining_{false};  // loaded relaxed: a step more or less

 private:
  // ---- steps.cc
  // A step in the executor's hands, with everything that must live until it ends.
  struct Running {
    std::shared_ptr<WorkerSession> session;
    uint64_t step = 0;
    StepIds row;
    bool in_row = false;
    std::shared_ptr<RegisteredGraph> graph;
    std::shared_ptr<StepTrace> trace;
  };
  // Tensors and an abort that arrived before the step's run-step.
  struct Early {
    std::vector<EarlyTensor> tensors;
    Status aborted;
  };
  Status RefusalLocked(WorkerSession& session, const Request& request, bool continued) const
      MG_REQUIRES(session.mutex);
  std::shared_ptr<Step> PrepareLocked(const std::shared_ptr<WorkerSession>& session,
                                      const Request& request, Early* early)
      MG_REQUIRES(session->mutex);
  // The step has left only what a GPU does in its own order: the next one of its row may begin.
  void StepIssued(const Running& running);
  void EndStep(Running* running, const Status& status);
  // `unfinished`: of a step whose time was up (Step::unfinished).
  void ReportDone(WorkerSession& session, uint64_t step, const Status& status,
                  const std::string& unfinished) MG_EXCLUDES(session.mutex);

  // ---- messages.cc
  class Port;
  // A payload on its way to a peer.
  struct Departure {
    std::shared_ptr<WorkerSession> session;
    uint64_t step = 0;
    int peer = 0;
  };
  // A payload on its way into a tensor.
  struct Arrival {
    std::shared_ptr<WorkerSession> session;
    uint64_t step = 0;
    int32_t edge = 0;
    uint64_t iteration = 0;
    DType dtype = DT_INVALID;
    Shape shape;
    Tensor tensor;  // the destination, or packed bytes of strings and handles
    std::function<void(const Status&)> of_collective;  // or who gets a part of a collective
    std::shared_ptr<TensorParts> parts;                // or the tensor that a part of comes
    size_t offset = 0, bytes = 0;                      // of that part
  };
  // Decodes a header that came for this session. False if it was counted and dropped; the step of a
  // malformed one fails.
  bool Receive(WorkerSession& session, std::string_view header, size_t payload_bytes,
               StepMessage* message);
  // Memory for a tensor that only a GPU reads, in a step that runs; invalid: it comes to the host.
  // `*gpu`: that one.
  Tensor LandOnGpu(WorkerSession& session, const StepMessage& message, size_t bytes,
                   GpuDevice** gpu) MG_EXCLUDES(session.mutex);
  // The tensor that the message brings a part of; nullptr if nobody wants the part.
  Result<std::shared_ptr<TensorParts>> PartsOf(WorkerSession& session, const StepMessage& message)
      MG_EXCLUDES(session.mutex);
  std::shared_ptr<TensorParts> MakeParts(WorkerSession& session, const StepMessage& message)
      MG_EXCLUDES(session.mutex);
  PayloadSink OnPart(WorkerSession& session, const StepMessage& message, size_t payload_bytes);
  void Departed(Departure* departure, const Status& status);
  void Arrived(Arrival* arrival, const Status& status);
  void PartArrived(Arrival* arrival, const Status& status);
  void TensorPartArrived(Arrival* arrival, const Status& status);
  // A part is in its tensor, or the copy to there failed.
  void PartLanded(WorkerSession& session, uint64_t step, int32_t edge, TensorParts& parts,
                  const Status& status) MG_EXCLUDES(session.mutex);

  // ---- sessions.cc
  Status UnknownSession(uint64_t id) const;
  Result<std::shared_ptr<WorkerSession>> RequireSession(uint64_t id) const;
  void CloseTransport(const std::shared_ptr<WorkerSession>& session,
                      std::chrono::steady_clock::time_point parts_until);

  // ---- watch.cc
  void StartWatch() MG_EXCLUDES(watch_mutex_);
  void Watch() MG_EXCLUDES(watch_mutex_);
  // Looks after one session; when it has to be looked after again, or nothing if it is idle.
  std::optional<PeerWatch::Time> LookAfter(WorkerSession& session, PeerWatch::Time now)
      MG_EXCLUDES(session.mutex);
  // The parts that run here, and what they await from peers.
  std::vector<StepWatch::Sight> SightsOf(WorkerSession& session) const MG_EXCLUDES(session.mutex);
  void AwaitedLost(WorkerSession& session, const StepWatch::Missing& missing)
      MG_EXCLUDES(session.mutex);
  void TellWait(WorkerSession& session, uint64_t step) MG_EXCLUDES(session.mutex);
  void SendPing(WorkerSession& session, int peer, uint64_t step, uint8_t flags = 0)
      MG_EXCLUDES(session.mutex);

  Mutex watch_mutex_;
  CondVar watch_changed_;
  std::thread watch_thread_;  // started with the first step that has peers
  bool watch_ends_ MG_GUARDED_BY(watch_mutex_) = false;
  uint64_t watch_rounds_ MG_GUARDED_BY(watch_mutex_) = 0;  // begun
  bool watch_looks_ MG_GUARDED_BY(watch_mutex_) = false;   // a round is under way
  // Relaxed: whoever sets it to true looks once more, under the sessions' locks, for steps that
  // have begun.
  std::atomic<bool> watch_asleep_ = true;

  FreeList<Running> running_;
  FreeList<Departure> departures_;
  FreeList<Arrival> arrivals_;
};

// A graph of a session, and the sink that its steps push into.
struct RegisteredGraph : StepSink {
  Worker::Impl* worker = nullptr;
  WorkerSession* session = nullptr;  // outlives the graph's steps
  std::unique_ptr<const CollectiveHome> collectives;
  std::shared_ptr<const Plan> plan;
  std::vector<int16_t> edge_peer;  // by edge id: where it goes, kSelf for the client here
  std::vector<int> peers;          // that it sends tensors to or gets them from, each once
  void OnSend(uint64_t step, const EdgeInfo& edge, Tensor tensor, uint64_t iteration) override;
};

}  // namespace monograph
