#include "executor/worker.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "executor/collective.h"
#include "executor/cuda_devices.h"
#include "executor/device.h"
#include "executor/plan.h"
#include "executor/resource_manager.h"
#include "executor/step_executor.h"
#include "executor/step_message.h"
#include "executor/thread_pools.h"
#include "executor/trace.h"
#include "graph/function.h"
#include "transport/control/hello.h"

namespace monograph {
namespace {

// Steps of a session live in a ring: a step and the one kStepSlots later share a slot, and a client
// never has so many in flight.
constexpr size_t kStepSlots = 2 * kMaxStepsInFlight;
constexpr size_t kTracesKept = 16;

// Records of one kind that are used again and again, linked by T::next, so that a steady step takes
// none from the heap. Thread-safe.
template <typename T>
class FreeList {
 public:
  FreeList() = default;
  FreeList(const FreeList&) = delete;
  FreeList& operator=(const FreeList&) = delete;
  ~FreeList() {
    while (first_ != nullptr) delete std::exchange(first_, first_->next);
  }
  T* Take() {
    {
      std::lock_guard lock(mutex_);
      if (first_ != nullptr) return std::exchange(first_, first_->next);
    }
    return new T;
  }
  void Give(T* record) {
    std::lock_guard lock(mutex_);
    record->next = first_;
    first_ = record;
  }

 private:
  std::mutex mutex_;
  T* first_ = nullptr;  // guarded by mutex_
};

}  // namespace

class Worker::Impl : public MessageHandler, public CollectiveHost {
 public:
  explicit Impl(WorkerOptions options)
      : options_(std::move(options)), task_(options_.task.TaskName()) {}
  ~Impl() override { Shutdown(); }  // again does nothing

  Status Start();

  PayloadSink OnMessage(std::string_view header, size_t payload_bytes) override;
  void OnDelivered(std::string_view header, Payload payload) override;

  struct RegisteredGraph;

  // One step's place in the ring. States of `step` against the slot: 0: never used; another (older)
  // step: that step is over, or dead; this step: parked (state kParked), running or over.
  struct Slot {
    enum State : uint8_t {
      kParked,   // tensors came, run-step has not
      kRunning,  // the executor has it
      kOver,     // step-done was sent; what arrives now is dropped
    };
    uint64_t step = 0;
    State state = kOver;
    std::shared_ptr<Step> running;
    std::vector<std::pair<int32_t, Tensor>> parked;
    Status aborted;  // an abort that came before run-step
  };

  // Steps that run in a row. Their slots are those of single steps.
  struct Row {
    uint64_t first = 0, last = 0;
    uint64_t current = 0;  // the one that runs, or is about to
    Status aborted;
  };

  struct Peer {
    std::string task;
    uint64_t incarnation = 0;
    PeerId id = 0;
    bool connected = false;
  };

  struct Session {
    uint64_t id = 0;
    std::vector<Peer> peers;
    int client_peer = kSelf;
    int self_index = 0;
    std::atomic<StepClient*> client = nullptr;

    mutable std::mutex mutex;
    std::condition_variable idle;
    std::unordered_map<uint32_t, std::shared_ptr<RegisteredGraph>> graphs;  // by handle
    uint32_t last_handle = 0;  // a handle is never used twice
    std::array<Slot, kStepSlots> slots;
    std::vector<Row> rows;  // those that run
    int running = 0;
    bool closed = false;
    std::deque<std::pair<uint64_t, std::shared_ptr<StepTrace>>> traces;

    Row* RowOf(uint64_t step) {  // REQUIRES: mutex
      for (Row& row : rows) {
        if (row.first <= step && step <= row.last) return &row;
      }
      return nullptr;
    }
    void EndRow(uint64_t last, uint64_t step);  // REQUIRES: mutex
  };

  // A graph of a session, and the sink that its steps push into.
  struct RegisteredGraph : StepSink {
    Impl* worker = nullptr;
    Session* session = nullptr;  // outlives the graph's steps
    std::unique_ptr<const CollectiveHome> collectives;
    std::shared_ptr<const Plan> plan;
    std::vector<int16_t>
        edge_peer;  // by edge id: the peer that the edge goes to, kSelf for the client here
    void OnSend(uint64_t step_id, const EdgeInfo& edge, Tensor tensor) override {
      worker->Push(*session, edge_peer[static_cast<size_t>(edge.id)], step_id, edge.id,
                   std::move(tensor));
    }
  };

  // Decodes a header. The session that it is for, or nullptr if it was counted and dropped; the
  // step of a malformed one fails.
  std::shared_ptr<Session> Receive(std::string_view header, StepMessage* message);

  std::shared_ptr<Session> FindSession(uint64_t id) const {
    std::shared_lock lock(sessions_mutex_);
    auto it = sessions_.find(id);
    return it == sessions_.end() ? nullptr : it->second;
  }
  Result<std::shared_ptr<Session>> RequireSession(uint64_t id) const {
    std::shared_ptr<Session> session = FindSession(id);
    if (session == nullptr) {
      return Aborted("Session " + std::to_string(id) + " is not known at " + task_ +
                     "; the task may have restarted. Connect again");
    }
    return session;
  }

  Status CreateSession(uint64_t id, const std::vector<PeerSpec>& peers, int client_peer,
                       int self_index, StepClient* client);
  Status CloseSession(uint64_t id, std::chrono::milliseconds deadline);
  Result<uint32_t> RegisterGraph(uint64_t id, Graph graph, bool inline_functions);
  Status DeregisterGraph(uint64_t id, uint32_t handle);

  void Push(Session& session, int peer, uint64_t step, int32_t edge, Tensor tensor);
  void Deliver(Session& session, uint64_t step, int32_t edge, Tensor tensor);
  // `last`: of the row, `step` itself if there is none. `row_graph`: of a row that goes on; nullptr
  // when it begins.
  void RunStep(const std::shared_ptr<Session>& session, uint32_t handle, uint64_t step,
               uint64_t last, bool trace, bool caller_computes,
               std::shared_ptr<RegisteredGraph> row_graph = nullptr);
  void AbortHere(Session& session, uint64_t step, const Status& status);
  // What arrives or leaves for the step was lost.
  void FailHere(Session& session, uint64_t step, const Status& status);
  struct Run;
  void EndStep(Run* run, const Status& status);
  void ReportDone(Session& session, uint64_t step, const Status& status);
  void SendMessage(Session& session, int peer, StepMessage message, Payload payload = {});
  const std::string& task() const override { return task_; }
  std::vector<std::string> TasksOfJob(uint64_t session, std::string_view job) const override;
  Status SendCollective(uint64_t session, std::string_view task, StepMessage message,
                        Payload payload, Done done) override;
  void Shutdown();
  void CountDropped(const char* what) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    if (LogEnabled(LogLevel::kDebug)) LogDebug(task_ + " dropped " + what);
  }

  WorkerOptions options_;
  const std::string task_;
  const uint64_t incarnation_ = control::RandomNonZero();
  std::unique_ptr<ThreadPools> pools_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<DeviceInfo> device_infos_;
  ResourceManager resources_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<CollectiveManager> collectives_;

  mutable std::shared_mutex sessions_mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;  // guarded by sessions_mutex_

  std::atomic<bool> stuck_ = false;  // a session was given up while a kernel of it ran
  std::atomic<uint64_t> dropped_{0}, steps_done_{0}, steps_failed_{0};
  std::atomic<int64_t> sending_{0};  // messages whose Send has not completed
  std::atomic<bool> draining_{false};

  // A step that the executor has, and what must live as long.
  struct Run {
    std::shared_ptr<Session> session;
    uint64_t step = 0, last = 0;
    bool in_row = false;
    std::shared_ptr<RegisteredGraph> graph;
    std::shared_ptr<StepTrace> trace;
    Run* next = nullptr;
  };
  FreeList<Run> runs_;

  // A payload on its way to a peer.
  struct Departure {
    uint64_t session = 0, step = 0;
    Departure* next = nullptr;
  };
  FreeList<Departure> departures_;
  void Departed(Departure* departure, const Status& status);

  // A payload on its way into a tensor.
  struct Arrival {
    std::shared_ptr<Session> session;
    uint64_t step = 0;
    int32_t edge = 0;
    DType dtype = DT_INVALID;
    Shape shape;
    Tensor tensor;  // the destination, or packed bytes of strings and handles
    Arrival* next = nullptr;
  };
  FreeList<Arrival> arrivals_;
  void Arrived(Arrival* arrival, const Status& status);
};

Status Worker::Impl::Start() {
  pools_ = std::make_unique<ThreadPools>(options_.inter_op_parallelism_threads,
                                         options_.intra_op_parallelism_threads);
  MG_ASSIGN_OR_RETURN(devices_, MakeCpuDevices(options_.task, options_.cpu_devices));
  MG_ASSIGN_OR_RETURN(auto gpus, MakeCudaDevices(options_.task, options_.gpu));
  for (auto& gpu : gpus) devices_.push_back(std::move(gpu));
  collectives_ = std::make_unique<CollectiveManager>(this, pools_.get());
  for (const auto& device : devices_) {
    device_infos_.push_back(device->info());
    device_infos_.back().incarnation = incarnation_;
  }
  if (options_.make_transport) {
    MG_ASSIGN_OR_RETURN(transport_, options_.make_transport(this));
  }
  return Status();
}

void Worker::Impl::Shutdown() {
  std::vector<uint64_t> ids;
  {
    std::shared_lock lock(sessions_mutex_);
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  for (uint64_t id : ids) {
    if (Status status = CloseSession(id, std::chrono::seconds(10)); !status.ok())
      LogWarning(task_ + ": " + status.ToString());
  }
  if (transport_ != nullptr) {
    transport_->Close();
    transport_->Join();
  }
  if (collectives_ != nullptr) collectives_->Stop();
}

// ---- sessions

Status Worker::Impl::CreateSession(uint64_t id, const std::vector<PeerSpec>& peers, int client_peer,
                                   int self_index, StepClient* client) {
  auto session = std::make_shared<Session>();
  session->id = id;
  session->client_peer = client_peer;
  session->self_index = self_index;
  session->client = client;
  if (!peers.empty() && transport_ == nullptr)
    return FailedPrecondition(
        task_ + " has no data plane, so it cannot take part in a session with other tasks");
  for (const PeerSpec& spec : peers) {
    Peer peer{.task = spec.task, .incarnation = spec.incarnation};
    Result<PeerId> connected = transport_->Connect(spec.transport_address, spec.task);
    if (!connected.ok()) {
      for (const Peer& made : session->peers) transport_->Disconnect(made.id);
      return connected.status().WithContext("connecting " + task_ + " to " + spec.task);
    }
    peer.id = connected.value();
    peer.connected = true;
    session->peers.push_back(std::move(peer));
  }
  std::unique_lock lock(sessions_mutex_);
  if (!sessions_.emplace(id, session).second) {
    lock.unlock();
    for (const Peer& peer : session->peers) transport_->Disconnect(peer.id);
    return AlreadyExists("session " + std::to_string(id) + " exists already at " + task_);
  }
  return Status();
}

Status Worker::Impl::CloseSession(uint64_t id, std::chrono::milliseconds deadline) {
  std::shared_ptr<Session> session;
  collectives_->SessionClosed(id);  // others are told while there is a way to them
  {
    std::unique_lock lock(sessions_mutex_);
    auto it = sessions_.find(id);
    if (it == sessions_.end())
      return NotFound("session " + std::to_string(id) + " is not known at " + task_);
    session = it->second;
    sessions_.erase(it);
  }
  std::vector<std::shared_ptr<Step>> running;
  {
    std::lock_guard lock(session->mutex);
    session->closed = true;
    for (Slot& slot : session->slots) {
      slot.parked.clear();
      if (slot.state == Slot::kRunning) running.push_back(slot.running);
    }
  }
  for (const auto& step : running) {
    step->Abort(
        Cancelled("Step was cancelled by an explicit call to Session::Close().").AsDerived());
  }
  running.clear();
  bool ended;
  {
    std::unique_lock lock(session->mutex);
    ended = session->idle.wait_for(lock, deadline, [&] { return session->running == 0; });
  }
  collectives_->SessionClosed(id);  // what its steps began meanwhile
  for (const Peer& peer : session->peers) transport_->Disconnect(peer.id);
  if (!ended) {
    // The kernel will end some day: all that it uses must stay, and the client hears no more of it.
    session->client = nullptr;
    stuck_ = true;
    return DeadlineExceeded("a kernel of session " + std::to_string(id) + " still runs at " +
                            task_);
  }
  std::lock_guard lock(session->mutex);
  session->graphs.clear();
  return Status();
}

Result<uint32_t> Worker::Impl::RegisterGraph(uint64_t id, Graph graph, bool inline_functions) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, RequireSession(id));
  auto registered = std::make_shared<RegisteredGraph>();
  registered->worker = this;
  registered->session = session.get();
  registered->collectives = std::make_unique<const CollectiveHome>(collectives_.get(), id);
  if (inline_functions) {
    MG_ASSIGN_OR_RETURN(graph, InlineFunctions(graph));
  }
  if (options_.rewrite) {
    MG_ASSIGN_OR_RETURN(graph, options_.rewrite(std::move(graph)));
  }
  PlanOptions plan_options;
  plan_options.kernels = options_.kernels;
  for (const auto& device : devices_) plan_options.devices.push_back(device.get());
  plan_options.pools = pools_.get();
  plan_options.resources = &resources_;
  plan_options.collectives = registered->collectives.get();
  plan_options.inline_functions = inline_functions;
  MG_ASSIGN_OR_RETURN(registered->plan, CompilePlan(std::move(graph), plan_options));
  for (const EdgeInfo& edge : registered->plan->send_edges()) {
    MG_ASSIGN_OR_RETURN(const DeviceName device, DeviceName::Parse(edge.recv_device));
    const std::string task = device.TaskName();
    int peer = kSelf;
    if (task != task_) {
      auto it = std::find_if(session->peers.begin(), session->peers.end(),
                             [&](const Peer& p) { return p.task == task; });
      if (it == session->peers.end())
        return InvalidArgument("'" + edge.name + "' goes to " + task +
                               ", which is not in the session");
      peer = static_cast<int>(it - session->peers.begin());
    }
    const auto index = static_cast<size_t>(edge.id);
    if (registered->edge_peer.size() <= index) registered->edge_peer.resize(index + 1, kSelf);
    registered->edge_peer[index] = static_cast<int16_t>(peer);
  }
  std::lock_guard lock(session->mutex);
  if (session->closed) return Aborted("session " + std::to_string(id) + " was closed meanwhile");
  session->graphs.emplace(++session->last_handle, std::move(registered));
  return session->last_handle;
}

Status Worker::Impl::DeregisterGraph(uint64_t id, uint32_t handle) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, RequireSession(id));
  std::shared_ptr<RegisteredGraph> graph;  // freed outside the lock; steps of it may still run
  std::lock_guard lock(session->mutex);
  auto it = session->graphs.find(handle);
  if (it == session->graphs.end())
    return NotFound("graph handle " + std::to_string(handle) + " is not known at " + task_);
  graph = std::move(it->second);
  session->graphs.erase(it);
  return Status();
}

// ---- steps

// What still comes for the rest of a row is dropped.
void Worker::Impl::Session::EndRow(uint64_t last, uint64_t step) {
  std::erase_if(rows, [last](const Row& row) { return row.last == last; });
  for (uint64_t ahead = step + 1; ahead <= last; ++ahead) {
    Slot& slot = slots[ahead % kStepSlots];
    if (slot.step > ahead || slot.state == Slot::kRunning) continue;
    slot.step = ahead;
    slot.state = Slot::kOver;
    slot.parked.clear();
  }
}

void Worker::Impl::RunStep(const std::shared_ptr<Session>& session, uint32_t handle,
                           uint64_t step_id, uint64_t last, bool trace, bool caller_computes,
                           std::shared_ptr<RegisteredGraph> row_graph) {
  const bool continued = row_graph != nullptr, in_row = continued || last != step_id;
  std::shared_ptr<RegisteredGraph> graph = std::move(row_graph);
  std::shared_ptr<Step> step;
  std::vector<std::pair<int32_t, Tensor>> parked;
  Status refused, aborted;
  {
    std::lock_guard lock(session->mutex);
    Slot& slot = session->slots[step_id % kStepSlots];
    if (session->closed) return;
    if (auto it = session->graphs.find(handle); !continued && it != session->graphs.end())
      graph = it->second;
    if (slot.step > step_id || (slot.step == step_id && slot.state != Slot::kParked)) {
      CountDropped("a second run-step of one step");
      return;
    }
    if (draining_.load(std::memory_order_relaxed) && !continued) {
      refused = Unavailable(task_ + " is shutting down");
    } else if (graph == nullptr) {
      refused = Aborted("Graph handle is not found: " + std::to_string(handle) +
                        ". Possibly this worker (\"" + task_ + "\") just restarted.");
    } else if (slot.step < step_id && slot.state == Slot::kRunning) {
      refused = ResourceExhausted("step " + std::to_string(slot.step) + " still runs at " + task_ +
                                  ": more than " + std::to_string(kMaxStepsInFlight) +
                                  " steps in flight");
    }
    if (!refused.ok()) {
      if (slot.state != Slot::kRunning) {  // what still comes for it is dropped
        slot.step = step_id;
        slot.state = Slot::kOver;
        slot.parked.clear();
      }
      if (in_row) session->EndRow(last, step_id);
    } else {
      if (slot.step != step_id) {
        slot.parked.clear();
        slot.aborted = Status();
      }
      std::shared_ptr<StepTrace> step_trace;
      if (trace) {
        step_trace = std::make_shared<StepTrace>();
        session->traces.emplace_back(step_id, step_trace);
        if (session->traces.size() > kTracesKept) session->traces.pop_front();
      }
      slot.step = step_id;
      slot.state = Slot::kRunning;
      ++session->running;
      Run* run = runs_.Take();
      run->session = session;
      run->step = step_id;
      run->last = last;
      run->in_row = in_row;
      run->graph = graph;
      run->trace = step_trace;
      step = StepExecutor::Prepare(
          graph->plan, step_id, graph.get(),
          [this, run](const Status& status) { EndStep(run, status); }, step_trace.get());
      slot.running = step;
      parked.swap(slot.parked);
      aborted = std::exchange(slot.aborted, Status());
      if (in_row) {
        if (!continued) {
          session->rows.push_back({step_id, last, step_id, Status()});
          // An abort that came first has the last one's number.
          Slot& end = session->slots[last % kStepSlots];
          if (end.step == last && end.state == Slot::kParked)
            session->rows.back().aborted = std::exchange(end.aborted, Status());
        }
        Row* row = session->RowOf(step_id);
        row->current = step_id;
        aborted.Update(row->aborted);
      }
    }
  }
  if (!refused.ok()) {
    ReportDone(*session, last, refused);
    return;
  }
  // Not under the lock: one that does not fit its edge ends the step, and EndStep takes the lock.
  for (auto& [edge, tensor] : parked) step->Deliver(edge, std::move(tensor));
  if (parked.capacity() > 0) {  // its memory serves the slot's next steps
    parked.clear();
    std::lock_guard lock(session->mutex);
    Slot& slot = session->slots[step_id % kStepSlots];
    if (slot.parked.capacity() == 0) slot.parked.swap(parked);
  }
  step->Start(caller_computes);
  if (!aborted.ok()) step->Abort(aborted);
}

void Worker::Impl::EndStep(Run* run, const Status& status) {
  const std::shared_ptr<Session> session = std::move(run->session);
  const uint64_t step_id = run->step, last = run->last;
  const bool in_row = run->in_row;
  std::shared_ptr<RegisteredGraph> graph = std::move(run->graph);
  if (!status.ok() && graph->collectives->used())
    collectives_->StepFailed(session->id, step_id, status);
  run->trace = nullptr;
  runs_.Give(run);
  (status.ok() ? steps_done_ : steps_failed_).fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Step> finished;  // freed outside the lock
  Status result = status;
  bool closed, more = false;
  {
    std::lock_guard lock(session->mutex);
    Slot& slot = session->slots[step_id % kStepSlots];
    if (slot.step == step_id) {
      slot.state = Slot::kOver;
      finished = std::move(slot.running);
      slot.parked.clear();
    }
    closed = session->closed;
    if (in_row) {
      Row* row = session->RowOf(step_id);
      result.Update(row->aborted);
      more = step_id != last && result.ok() && !closed;
      if (more) {
        row->current = step_id + 1;
      } else {
        session->EndRow(last, step_id);
      }
    }
  }
  if (more) {
    RunStep(session, 0, step_id + 1, last, false, false, std::move(graph));
  } else if (!closed || session->client != nullptr) {
    ReportDone(*session, last, result);
  }
  graph = nullptr;  // freed here if it was deregistered meanwhile
  // Last: CloseSession waits for this count and then lets the peers go.
  std::lock_guard lock(session->mutex);
  if (--session->running == 0) session->idle.notify_all();
}

void Worker::Impl::ReportDone(Session& session, uint64_t step_id, const Status& status) {
  if (session.client_peer == kSelf) {
    if (StepClient* client = session.client) client->OnStepDone(step_id, kSelf, status);
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kStepDone;
  message.id = static_cast<uint32_t>(session.self_index);
  message.step = step_id;
  message.status = status;
  SendMessage(session, session.client_peer, std::move(message));
}

void Worker::Impl::AbortHere(Session& session, uint64_t step_id, const Status& status) {
  std::shared_ptr<Step> step;
  {
    std::lock_guard lock(session.mutex);
    Row* row = session.RowOf(step_id);
    if (row != nullptr) row->aborted.Update(status);
    const uint64_t running = row != nullptr ? row->current : step_id;
    Slot& slot = session.slots[running % kStepSlots];
    if (slot.step == running && slot.state == Slot::kRunning) {
      step = slot.running;
    } else if (row != nullptr) {
      // Between two steps: the next one sees it.
    } else if (slot.step < step_id && slot.state != Slot::kRunning) {
      // The abort came first; run-step of this very step may still follow.
      slot.step = step_id;
      slot.state = Slot::kParked;
      slot.parked.clear();
      slot.aborted = status;
    } else if (slot.step == step_id && slot.state == Slot::kParked) {
      slot.aborted = status;
    }
  }
  if (step != nullptr) step->Abort(status);
}

void Worker::Impl::FailHere(Session& session, uint64_t step_id, const Status& status) {
  // A step of which this process has no part is known to the client alone.
  if (StepClient* client = session.client) client->OnStepFailed(step_id, status);
  AbortHere(session, step_id, status);
}

void Worker::Impl::Push(Session& session, int peer, uint64_t step, int32_t edge, Tensor tensor) {
  if (peer == kSelf) {
    if (StepClient* client = session.client; client && client->OnFetch(step, edge, tensor)) return;
    Deliver(session, step, edge, std::move(tensor));
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kTensor;
  message.id = static_cast<uint32_t>(edge);
  message.step = step;
  if (tensor.valid()) {
    message.dtype = tensor.dtype();
    message.shape = tensor.shape();
    SendMessage(session, peer, std::move(message), TensorPayload(tensor));
  } else {  // a control edge
    message.dtype = DT_FLOAT;
    message.shape = Shape{0};
    SendMessage(session, peer, std::move(message));
  }
}

void Worker::Impl::SendMessage(Session& session, int peer, StepMessage message, Payload payload) {
  Peer& target = session.peers[static_cast<size_t>(peer)];
  message.session = session.id;
  message.incarnation = target.incarnation;
  char header[kMaxHeaderBytes];
  const size_t length = EncodeStepMessage(message, header);
  if (payload.bytes == 0) {  // leaves at once
    transport_->Send(target.id, {header, length}, {}, nullptr);
    return;
  }
  sending_.fetch_add(1, std::memory_order_relaxed);
  Departure* departure = departures_.Take();
  departure->session = session.id;
  departure->step = message.step;
  transport_->Send(target.id, {header, length}, std::move(payload),
                   [this, departure](const Status& status) { Departed(departure, status); });
}

void Worker::Impl::Departed(Departure* departure, const Status& status) {
  const uint64_t id = departure->session, step = departure->step;
  departures_.Give(departure);
  sending_.fetch_sub(1, std::memory_order_relaxed);
  if (status.ok()) return;
  if (std::shared_ptr<Session> session = FindSession(id))
    FailHere(*session, step, status.WithContext("sending from " + task_).AsDerived());
}

std::vector<std::string> Worker::Impl::TasksOfJob(uint64_t id, std::string_view job) const {
  std::vector<DeviceName> found;
  const auto add = [&](const DeviceName& task) {
    if (task.job == job) found.push_back(task);
  };
  add(options_.task);
  if (const std::shared_ptr<Session> session = FindSession(id)) {
    for (const Peer& peer : session->peers) {
      if (const Result<DeviceName> task = DeviceName::Parse(peer.task); task.ok()) add(*task);
    }
  }
  std::sort(found.begin(), found.end(), [](const DeviceName& a, const DeviceName& b) {
    return std::pair(a.replica, a.task) < std::pair(b.replica, b.task);
  });
  std::vector<std::string> names;
  for (const DeviceName& task : found) names.push_back(task.TaskName());
  return names;
}

Status Worker::Impl::SendCollective(uint64_t id, std::string_view task, StepMessage message,
                                    Payload payload, Done done) {
  const std::shared_ptr<Session> session = FindSession(id);
  if (session == nullptr) return Unavailable("the session is closed at " + task_);
  const auto peer = std::find_if(session->peers.begin(), session->peers.end(),
                                 [&](const Peer& p) { return p.task == task; });
  if (peer == session->peers.end())
    return Unavailable(std::string(task) + " is not in the session of " + task_);
  message.session = id;
  message.incarnation = peer->incarnation;
  char header[kMaxHeaderBytes];
  const size_t length = EncodeStepMessage(message, header);
  if (payload.bytes == 0) {
    transport_->Send(peer->id, {header, length}, {}, std::move(done));
    return Status();
  }
  sending_.fetch_add(1, std::memory_order_relaxed);
  transport_->Send(peer->id, {header, length}, std::move(payload),
                   [this, done = std::move(done)](const Status& status) {
                     sending_.fetch_sub(1, std::memory_order_relaxed);
                     if (done) done(status);
                   });
  return Status();
}

void Worker::Impl::Deliver(Session& session, uint64_t step_id, int32_t edge, Tensor tensor) {
  std::shared_ptr<Step> step;
  {
    std::lock_guard lock(session.mutex);
    Slot& slot = session.slots[step_id % kStepSlots];
    if (slot.step == step_id && slot.state == Slot::kRunning) {
      step = slot.running;
    } else if (session.closed || slot.step > step_id ||
               (slot.step == step_id && slot.state == Slot::kOver) ||
               slot.state == Slot::kRunning) {
      CountDropped("a tensor of a step that is over");
      return;
    } else {
      if (slot.step != step_id) {
        slot.step = step_id;
        slot.state = Slot::kParked;
        slot.parked.clear();
        slot.aborted = Status();
      }
      slot.parked.emplace_back(edge, std::move(tensor));
      return;
    }
  }
  step->Deliver(edge, std::move(tensor));
}

// ---- arrivals

std::shared_ptr<Worker::Impl::Session> Worker::Impl::Receive(std::string_view header,
                                                             StepMessage* message) {
  const Status decoded = DecodeStepMessage(header, message);
  std::shared_ptr<Session> session =
      decoded.ok() || message->step != 0 ? FindSession(message->session) : nullptr;
  if (session == nullptr || message->incarnation != incarnation_) {
    CountDropped(decoded.ok() ? "a message of another life" : decoded.message().c_str());
    return nullptr;
  }
  if (decoded.ok()) return session;
  // What it was to bring will not come.
  CountDropped(decoded.message().c_str());
  FailHere(*session, message->step, decoded.WithContext("receiving at " + task_));
  return nullptr;
}

PayloadSink Worker::Impl::OnMessage(std::string_view header, size_t payload_bytes) {
  StepMessage message;
  std::shared_ptr<Session> session = Receive(header, &message);
  if (session == nullptr) return {};
  if (message.kind == StepMessageKind::kCollective)
    return collectives_->OnMessage(message, payload_bytes);
  if (message.kind != StepMessageKind::kTensor) {
    CountDropped("a payload that belongs to no tensor");
    return {};
  }
  const bool plain = IsPlainData(message.dtype);
  auto allocate = [&]() -> Result<Tensor> {
    MG_RETURN_IF_ERROR(CheckPayload(message.dtype, message.shape, payload_bytes));
    if (plain) return Tensor::Allocate(message.dtype, message.shape);
    return Tensor::Allocate(DT_UINT8, Shape{static_cast<int64_t>(payload_bytes)});
  };
  Result<Tensor> tensor = allocate();
  if (!tensor.ok()) {
    FailHere(*session, message.step,
             tensor.status().WithContext("receiving edge " + std::to_string(message.id) + " at " +
                                         task_));
    return {};
  }
  Arrival* arrival = arrivals_.Take();
  arrival->session = std::move(session);
  arrival->step = message.step;
  arrival->edge = static_cast<int32_t>(message.id);
  arrival->dtype = message.dtype;
  arrival->shape = message.shape;
  arrival->tensor = std::move(tensor).value();
  return {arrival->tensor.raw(),
          [this, arrival](const Status& status) { Arrived(arrival, status); },
          arrival->tensor.buffer()};
}

void Worker::Impl::Arrived(Arrival* arrival, const Status& status) {
  std::shared_ptr<Session> session = std::move(arrival->session);
  const uint64_t step = arrival->step;
  const int32_t edge = arrival->edge;
  Result<Tensor> tensor = std::move(arrival->tensor);
  if (status.ok() && !IsPlainData(arrival->dtype)) {
    tensor = UnpackTensor(arrival->dtype, arrival->shape,
                          {tensor->data<char>(), static_cast<size_t>(tensor->elements())});
  }
  arrivals_.Give(arrival);
  if (!status.ok() || !tensor.ok()) {
    const Status& cause = status.ok() ? tensor.status() : status;
    FailHere(
        *session, step,
        cause.WithContext("receiving edge " + std::to_string(edge) + " at " + task_).AsDerived());
    return;
  }
  if (StepClient* client = session->client; client && client->OnFetch(step, edge, tensor.value()))
    return;
  Deliver(*session, step, edge, std::move(tensor).value());
}

void Worker::Impl::OnDelivered(std::string_view header, Payload payload) {
  StepMessage message;
  std::shared_ptr<Session> session = Receive(header, &message);
  if (session == nullptr) return;
  switch (message.kind) {
    case StepMessageKind::kRunStep:
      RunStep(session, message.id, message.step, message.step + message.count - 1,
              (message.flags & kTraceFlag) != 0, false);
      return;
    case StepMessageKind::kAbortStep:
      if (message.id != kFromClient || session->client_peer == kSelf) {
        CountDropped("an abort-step that did not come from the session's client");
        return;
      }
      AbortHere(*session, message.step, message.status);
      return;
    case StepMessageKind::kStepDone:
      // Only the client is told, and only by the session's tasks.
      if (session->client_peer != kSelf || message.id >= session->peers.size()) {
        CountDropped("a step-done of no member of the session");
      } else if (StepClient* client = session->client) {
        client->OnStepDone(message.step, static_cast<int>(message.id), message.status);
      }
      return;
    case StepMessageKind::kCollective:
      collectives_->OnDelivered(message, std::move(payload));
      return;
    case StepMessageKind::kTensor:
      break;
  }
  const auto edge = static_cast<int32_t>(message.id);
  auto make = [&]() -> Result<Tensor> {
    MG_RETURN_IF_ERROR(CheckPayload(message.dtype, message.shape, payload.bytes));
    if (!IsPlainData(message.dtype)) {
      return UnpackTensor(message.dtype, message.shape,
                          {static_cast<const char*>(payload.data()), payload.bytes});
    }
    if (!payload.buffer) return Tensor::Allocate(message.dtype, message.shape);
    return Tensor(message.dtype, message.shape, std::move(payload.buffer), payload.offset);
  };
  Result<Tensor> tensor = make();
  if (!tensor.ok()) {
    FailHere(
        *session, message.step,
        tensor.status().WithContext("receiving edge " + std::to_string(edge) + " at " + task_));
    return;
  }
  if (StepClient* client = session->client;
      client && client->OnFetch(message.step, edge, tensor.value()))
    return;
  Deliver(*session, message.step, edge, std::move(tensor).value());
}

// ---- the public face

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() {
  impl_->Shutdown();
  // A kernel that would not end still uses its worker.
  if (impl_->stuck_) (void)impl_.release();
}

Result<std::unique_ptr<Worker>> Worker::Create(WorkerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  MG_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

const std::string& Worker::task() const { return impl_->task_; }
const std::vector<DeviceInfo>& Worker::devices() const { return impl_->device_infos_; }
uint64_t Worker::incarnation() const { return impl_->incarnation_; }
std::string Worker::transport_address() const {
  return impl_->transport_ ? impl_->transport_->address() : std::string();
}
Transport* Worker::transport() const { return impl_->transport_.get(); }
ResourceManager& Worker::resources() const { return impl_->resources_; }

WorkerStats Worker::stats() const {
  WorkerStats stats;
  stats.steps_done = impl_->steps_done_.load(std::memory_order_relaxed);
  stats.steps_failed = impl_->steps_failed_.load(std::memory_order_relaxed);
  stats.messages_leaving = impl_->sending_.load(std::memory_order_relaxed);
  stats.messages_dropped = impl_->dropped_.load(std::memory_order_relaxed);
  std::shared_lock lock(impl_->sessions_mutex_);
  stats.sessions = static_cast<int>(impl_->sessions_.size());
  for (const auto& [id, session] : impl_->sessions_) {
    std::lock_guard session_lock(session->mutex);
    stats.running_steps += session->running;
    stats.graphs += static_cast<int>(session->graphs.size());
  }
  return stats;
}

Status Worker::CreateSession(uint64_t session, const std::vector<PeerSpec>& peers, int client_peer,
                             int self_index, StepClient* client) {
  return impl_->CreateSession(session, peers, client_peer, self_index, client);
}
Status Worker::CloseSession(uint64_t session, std::chrono::milliseconds deadline) {
  return impl_->CloseSession(session, deadline);
}

std::vector<std::string> Worker::DescribePeers(uint64_t id) const {
  std::vector<std::string> lines;
  std::shared_ptr<Impl::Session> session = impl_->FindSession(id);
  if (session == nullptr) return lines;
  for (const Impl::Peer& peer : session->peers) {
    lines.push_back(task() + " -> " + peer.task + ": " + impl_->transport_->Describe(peer.id));
  }
  return lines;
}

void Worker::DropPeer(uint64_t id, const std::string& task) {
  std::shared_ptr<Impl::Session> session = impl_->FindSession(id);
  if (session == nullptr) return;
  for (const Impl::Peer& peer : session->peers) {
    if (peer.task == task) impl_->transport_->Disconnect(peer.id);
  }
  impl_->collectives_->PeerLost(id, task);
}

Result<uint32_t> Worker::RegisterGraph(uint64_t session, Graph graph, bool inline_functions) {
  return impl_->RegisterGraph(session, std::move(graph), inline_functions);
}
Status Worker::DeregisterGraph(uint64_t session, uint32_t handle) {
  return impl_->DeregisterGraph(session, handle);
}

void Worker::PushTensor(uint64_t id, int peer, uint64_t step, int32_t edge, Tensor tensor) {
  std::shared_ptr<Impl::Session> session = impl_->FindSession(id);
  if (session == nullptr) return;
  if (peer == kSelf) {
    impl_->Deliver(*session, step, edge, std::move(tensor));
  } else {
    impl_->Push(*session, peer, step, edge, std::move(tensor));
  }
}

void Worker::RunStep(uint64_t id, int peer, uint32_t handle, uint64_t step, bool trace,
                     bool caller_computes, uint32_t count) {
  std::shared_ptr<Impl::Session> session = impl_->FindSession(id);
  if (session == nullptr) return;
  if (peer == kSelf) {
    impl_->RunStep(session, handle, step, step + count - 1, trace, caller_computes);
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kRunStep;
  message.flags = trace ? kTraceFlag : 0;
  message.id = handle;
  message.step = step;
  message.count = count;
  impl_->SendMessage(*session, peer, std::move(message));
}

void Worker::AbortStep(uint64_t id, int peer, uint64_t step, const Status& status) {
  std::shared_ptr<Impl::Session> session = impl_->FindSession(id);
  if (session == nullptr) return;
  if (peer == kSelf) {
    impl_->AbortHere(*session, step, status);
    return;
  }
  StepMessage message;
  message.kind = StepMessageKind::kAbortStep;
  message.id = kFromClient;
  message.step = step;
  message.status = status;
  impl_->SendMessage(*session, peer, std::move(message));
}

std::shared_ptr<StepTrace> Worker::TakeTrace(uint64_t id, uint64_t step) {
  std::shared_ptr<Impl::Session> session = impl_->FindSession(id);
  if (session == nullptr) return nullptr;
  std::lock_guard lock(session->mutex);
  for (auto it = session->traces.begin(); it != session->traces.end(); ++it) {
    if (it->first == step) {
      std::shared_ptr<StepTrace> trace = it->second;
      session->traces.erase(it);
      return trace;
    }
  }
  return nullptr;
}

void Worker::Drain() { impl_->draining_ = true; }

void Worker::Reset(const std::vector<std::string>& containers) {
  impl_->resources_.Clear(containers);
}

}  // namespace monograph
