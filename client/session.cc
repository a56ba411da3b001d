#include "client/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread.h"
#include "client/cluster_connection.h"
#include "client/master.h"
#include "client/registries.h"
#include "executor/kernel_runner.h"
#include "executor/step_message.h"
#include "executor/task_status.h"
#include "executor/trace.h"
#include "executor/worker.h"
#include "executor/worker.pb.h"
#include "transport/control/hello.h"
#include "transport/control/host_port.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kControlTimeout(10);
// What a step may still take after it failed or timed out, for every task to say that it stopped;
// and after a task was lost: the caller is to hear of that soon, also if another task is inside a
// long kernel.
constexpr std::chrono::milliseconds kAbortGrace(5000), kLostGrace(100);
constexpr size_t kStepSlots = 2 * kMaxStepsInFlight;

// True if every task is on this machine.
bool OnLoopback(const ClusterSpec& cluster) {
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [task, address] : tasks) {
      if (Result<control::HostPort> parsed = control::ParseHostPort(address);
          !parsed.ok() || !control::IsLoopback(parsed->host))
        return false;
    }
  }
  return true;
}

std::string Seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(duration.count()) / 1000.0);
  return text;
}

}  // namespace

class Session::Impl : public StepClient {
 public:
  Impl(const Graph& graph, SessionOptions options) : graph_(graph), options_(std::move(options)) {}
  ~Impl() override { (void)Close(); }

  Status Start(const ClusterSpec* cluster);
  Status Close();

  bool OnFetch(uint64_t step, int32_t edge, Tensor& tensor) override;
  void OnStepDone(uint64_t step, int peer, const Status& status) override;
  void OnStepFailed(uint64_t step, const Status& status) override;
  void OnTaskLost(int task, const Status& why);

  // A step in flight. It is over when every part has reported and, unless it failed, every fetch is
  // here.
  struct InFlight {
    uint64_t first = 0, step = 0;  // a row of steps, known by its last; usually one
    bool active = false;
    std::shared_ptr<PreparedStep> prepared;
    std::vector<Tensor> fetched;  // distinct fetches
    std::vector<bool> part_done;  // by index in prepared->parts
    std::vector<Tensor> feeds;    // those that are fetched as they were fed
    int parts_missing = 0;
    int fetches_missing = 0;
    Status status;
    bool aborting = false;
    Clock::time_point deadline = Clock::time_point::max();
    std::chrono::milliseconds timeout{0};
    StepDone done;                          // asynchronous steps
    std::atomic<bool>* finished = nullptr;  // synchronous ones; the waiting thread owns it
    Result<std::vector<Tensor>>* result = nullptr;
  };

  Result<std::vector<Tensor>> RunPrepared(const std::shared_ptr<PreparedStep>& prepared,
                                          std::span<const Tensor> feeds, const RunOptions& options,
                                          RunMetadata* metadata);
  // Begins `count` steps in a row; *step_id gets the number of the last one.
  Status Begin(const std::shared_ptr<PreparedStep>& prepared, std::span<const Tensor> feeds,
               const RunOptions& options, uint32_t count, StepDone done,
               std::atomic<bool>* finished, Result<std::vector<Tensor>>* result, uint64_t* step_id);
  void Dispatch(const PreparedStep& prepared, std::span<const Tensor> feeds, uint64_t step,
                uint32_t count, bool trace, bool caller_computes);
  // The `count` numbers up to `last` have their places in the ring, here and at every task.
  // REQUIRES: mutex_.
  bool RoomLocked(uint64_t last, uint32_t count) const;
  // The row in flight that `step` belongs to, or nullptr. REQUIRES: mutex_.
  InFlight* FindLocked(uint64_t step);
  Status CheckFeeds(const PreparedStep& prepared, std::span<const Tensor> feeds) const;

  std::string TaskName(int peer) const {
    return peer == kSelf ? worker_->task() : cluster_->tasks()[static_cast<size_t>(peer)].task;
  }
  // Takes note of a failure; returns the peers whose parts must be told to stop. The step ends when
  // they have, or after `grace`. REQUIRES: mutex_.
  std::vector<int> FailLocked(InFlight& flight, const Status& status,
                              std::chrono::milliseconds grace = kAbortGrace);
  // If the step is over: takes it out of the ring and returns what completes it. REQUIRES: mutex_.
  struct Completion {
    StepDone done;
    Result<std::vector<Tensor>> result = std::vector<Tensor>();
    bool any = false;
    void Run() {
      if (done) done(std::move(result));
    }
  };
  Completion FinishLocked(InFlight& flight, bool force = false);
  void Abort(const std::vector<int>& peers, uint64_t step, const Status& status);
  void Expire(uint64_t step);
  void Cancel(uint64_t step, const Status& cause);
  void Watch();  // the thread that ends asynchronous steps whose time is up, and failed steps whose
                 // grace is
  // Sees to it that Watch knows of the flight's deadline. REQUIRES: mutex_.
  void WatchLocked();
  // A task whose record cannot be fetched is told in metadata->trace_error: the step succeeded all
  // the same.
  void TraceOf(uint64_t step, const PreparedStep& prepared, RunMetadata* metadata);

  // OK if the callable is one of this session.
  Status CheckCallable(const PreparedStep* prepared) const {
    if (prepared == nullptr)
      return InvalidArgument("the callable is empty; make one with MakeCallable");
    if (prepared->session != id_) {
      return InvalidArgument(
          "the callable was made by another session, whose handles mean nothing to this one; make "
          "one with this session's MakeCallable");
    }
    return Status();
  }

  // A call of the public face: Close waits for those that came before it, later ones are refused.
  class Call {
   public:
    explicit Call(Impl* impl) : impl_(impl) {
      impl_->calls_.fetch_add(1);
      open_ = !impl_->closing_.load();
    }
    ~Call() {
      if (impl_->calls_.fetch_sub(1) == 1 && impl_->closing_.load()) impl_->calls_.notify_all();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    Status status() const { return open_ ? Status() : FailedPrecondition("Session is closed."); }

   private:
    Impl* const impl_;
    bool open_;
  };

  const Graph& graph_;
  const SessionOptions options_;
  const uint64_t id_ = control::RandomNonZero();
  KernelRunner evaluator_{&DefaultRegistries().kernels};
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<ClusterConnection> cluster_;
  std::unique_ptr<Master> master_;

  std::mutex mutex_;
  std::condition_variable slot_free_;  // a step ended, or the session closed
  std::condition_variable watch_;
  std::array<InFlight, kStepSlots> flights_;
  uint64_t last_step_ = 0;
  uint64_t last_given_ = 0;  // the last one with RunOptions::step
  int running_ = 0;          // steps, those of rows counted each
  int rows_ = 0;             // of more than one step
  bool closed_ = false;
  std::vector<Status> lost_;  // by task
  std::thread watcher_;
  std::vector<DeviceInfo> devices_;  // constant after Start

  std::atomic<bool> closing_ = false;
  std::atomic<int> calls_ = 0;
};

Status Session::Impl::Start(const ClusterSpec* cluster) {
  Registries& registries = DefaultRegistries();
  WorkerOptions worker;
  worker.task = DeviceName::Parse(cluster == nullptr ? "/job:localhost/replica:0/task:0"
                                                     : "/job:client/replica:0/task:0")
                    .value();
  worker.ops = &registries.ops;
  worker.kernels = &registries.kernels;
  for (const auto& [type, count] : options_.device_count) {
    if (type == "CPU") {
      if (count < 1)
        return InvalidArgument("device_count[\"CPU\"] is " + std::to_string(count) +
                               "; at least 1 is needed");
      worker.cpu_devices = count;
    } else if (type != "GPU") {
      return InvalidArgument("device_count has the unknown device type '" + type +
                             "'; known are CPU and GPU");
    }
  }
  worker.inter_op_parallelism_threads = options_.inter_op_parallelism_threads;
  worker.intra_op_parallelism_threads = options_.intra_op_parallelism_threads;
  worker.rewrite = RewriteForExecution;
  if (cluster != nullptr) {
    UcxOptions ucx;
    const bool loopback = OnLoopback(*cluster);
    ucx.lanes = options_.lanes;
    ucx.net_devices = options_.net_devices.empty() && loopback ? "lo" : options_.net_devices;
    ucx.peer_errors = !loopback;
    ucx.spin = options_.spin;
    worker.make_transport = [ucx](MessageHandler* handler) {
      return MakeUcxTransport(ucx, handler);
    };
  }
  MG_ASSIGN_OR_RETURN(worker_, Worker::Create(std::move(worker)));

  std::vector<PeerSpec> peers;
  if (cluster != nullptr) {
    ClusterConnection::Options connect;
    connect.device_filters = options_.device_filters;
    connect.start_timeout = options_.start_timeout;
    connect.key = options_.key;
    connect.fingerprint = std::to_string(registries.ops.fingerprint());
    connect.on_lost = [this](int task, const Status& why) { OnTaskLost(task, why); };
    MG_ASSIGN_OR_RETURN(cluster_, ClusterConnection::Connect(*cluster, std::move(connect)));
    for (const RemoteTask& task : cluster_->tasks())
      peers.push_back({task.task, task.transport_address, task.incarnation});
  }
  {
    std::lock_guard lock(mutex_);
    lost_.resize(peers.size());
    for (size_t i = 0; i < peers.size(); ++i)
      lost_[i].Update(cluster_->status(static_cast<int>(i)));
  }
  MG_RETURN_IF_ERROR(worker_->CreateSession(id_, peers, kSelf, 0, this));
  if (cluster_ != nullptr) {
    // Each daemon hears of every other task, and of this client.
    std::vector<std::pair<int, std::string>> requests;
    for (size_t self = 0; self < peers.size(); ++self) {
      wire::CreateSessionRequest request;
      request.set_session(id_);
      auto add = [&request](const std::string& task, const std::string& address,
                            uint64_t incarnation) {
        wire::Peer* peer = request.add_peers();
        peer->set_task(task);
        peer->set_transport_address(address);
        peer->set_incarnation(incarnation);
      };
      for (size_t other = 0; other < peers.size(); ++other) {
        if (other != self)
          add(peers[other].task, peers[other].transport_address, peers[other].incarnation);
      }
      request.set_client_peer(request.peers_size());
      add(worker_->task(), worker_->transport_address(), worker_->incarnation());
      request.set_self_index(static_cast<int>(self));
      requests.emplace_back(static_cast<int>(self), request.SerializeAsString());
    }
    for (Result<std::string>& response :
         cluster_->Call("CreateSession", std::move(requests), kControlTimeout)) {
      if (!response.ok()) return response.status();
      wire::CreateSessionResponse parsed;
      if (!parsed.ParseFromString(response.value()))
        return Internal("malformed answer to CreateSession");
      for (const std::string& line : parsed.lanes()) LogInfo(line);
    }
  }

  Master::Options master;
  master.log_device_placement = options_.log_device_placement;
  master.placement_sink =
      options_.placement_sink ? options_.placement_sink : [](const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
      };
  master.allow_soft_placement = options_.allow_soft_placement;
  master.optimizer = options_.optimizer;
  master.has_kernel = [&registries](const std::string& op, const std::string& type) {
    // An op that nobody knows fails where a step needs it, not here; structural ops have no
    // kernels.
    if (registries.kernels.HasOp(op, type)) return true;
    return op[0] == '_' ||
           (!registries.kernels.HasOp(op, "CPU") && !registries.kernels.HasOp(op, "GPU"));
  };
  master.evaluate = evaluator_.evaluator();
  master_ = std::make_unique<Master>(graph_, id_, worker_.get(), cluster_.get(), std::move(master));
  devices_ = master_->devices();
  return Status();
}

// ---- running

Status Session::Impl::CheckFeeds(const PreparedStep& prepared,
                                 std::span<const Tensor> feeds) const {
  if (feeds.size() != prepared.feeds.size()) {
    return InvalidArgument(std::to_string(feeds.size()) + " tensors fed to a signature of " +
                           std::to_string(prepared.feeds.size()));
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const PreparedStep::FeedInfo& info = prepared.feeds[i];
    if (feeds[i].dtype() != info.dtype || !info.shape.Accepts(feeds[i].shape())) {
      return InvalidArgument("cannot feed " + std::string(DTypeName(feeds[i].dtype())) +
                             feeds[i].shape().ToString() + " for tensor '" + info.name +
                             "', which has type and shape " + std::string(DTypeName(info.dtype)) +
                             info.shape.ToString());
    }
  }
  return Status();
}

Status Session::Impl::Begin(const std::shared_ptr<PreparedStep>& prepared,
                            std::span<const Tensor> feeds, const RunOptions& options,
                            uint32_t count, StepDone done, std::atomic<bool>* finished,
                            Result<std::vector<Tensor>>* result, uint64_t* step_id) {
  MG_RETURN_IF_ERROR(CheckFeeds(*prepared, feeds));
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  const auto deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  std::unique_lock lock(mutex_);
  auto first = [&] {
    if (options.step > 0) return options.step;
    uint64_t step = last_step_ + 1;
    if (count > 1 || rows_ > 0) return step;
    // Steps that wait for long (for a queue) keep their slots: others go around them. Steps whose
    // numbers the caller gives cannot; so these keep out of the slots that such steps need next.
    if (last_given_ > 0) step = std::max(step, last_given_ + kStepSlots / 2);
    while (flights_[step % kStepSlots].active) ++step;
    return step;
  };
  auto next_free = [&] { return closed_ || RoomLocked(first() + count - 1, count); };
  if (!next_free()) {
    const auto until = std::min(deadline, Clock::now() + std::chrono::hours(24));
    if (!slot_free_.wait_until(lock, until, next_free)) {
      return DeadlineExceeded("no step of the " + std::to_string(running_) +
                              " in flight ended within " + Seconds(timeout));
    }
  }
  if (closed_) return FailedPrecondition("Session is closed.");
  if (Transport* transport = worker_->transport()) MG_RETURN_IF_ERROR(transport->Health());
  for (const PreparedStep::Part& part : prepared->parts) {
    if (part.peer != kSelf) MG_RETURN_IF_ERROR(lost_[static_cast<size_t>(part.peer)]);
  }
  if (first() <= last_step_) {
    return InvalidArgument("step " + std::to_string(options.step) + " comes after step " +
                           std::to_string(last_step_) + "; numbers of steps grow");
  }
  *step_id = last_step_ = first() + count - 1;
  if (options.step > 0) last_given_ = last_step_;
  InFlight& flight = flights_[last_step_ % kStepSlots];
  flight.first = last_step_ - count + 1;
  flight.step = last_step_;
  flight.active = true;
  flight.prepared = prepared;
  flight.fetched.assign(static_cast<size_t>(prepared->distinct_fetches), Tensor());
  flight.part_done.assign(prepared->parts.size(), false);
  flight.feeds.clear();
  for (int feed : prepared->fetch_of_feed) {
    if (feed >= 0) {
      flight.feeds.assign(feeds.begin(), feeds.end());
      break;
    }
  }
  flight.parts_missing = static_cast<int>(prepared->parts.size());
  flight.fetches_missing = prepared->distinct_fetches;
  flight.status = Status();
  flight.aborting = false;
  flight.deadline = deadline;
  flight.timeout = timeout;
  flight.done = std::move(done);
  flight.finished = finished;
  flight.result = result;
  running_ += static_cast<int>(count);
  if (count > 1) ++rows_;
  if (flight.done && deadline != Clock::time_point::max()) WatchLocked();
  return Status();
}

bool Session::Impl::RoomLocked(uint64_t last, uint32_t count) const {
  if (running_ + static_cast<int>(count) > kMaxStepsInFlight || flights_[last % kStepSlots].active)
    return false;
  if (count == 1 && rows_ == 0) return true;
  return std::none_of(flights_.begin(), flights_.end(), [last](const InFlight& flight) {
    return flight.active && flight.first + kStepSlots <= last;
  });
}

Session::Impl::InFlight* Session::Impl::FindLocked(uint64_t step) {
  InFlight& flight = flights_[step % kStepSlots];
  if (flight.active && flight.step == step) return &flight;
  if (rows_ == 0) return nullptr;
  const auto row = std::find_if(flights_.begin(), flights_.end(), [step](const InFlight& other) {
    return other.active && other.first <= step && step <= other.step;
  });
  return row == flights_.end() ? nullptr : &*row;
}

void Session::Impl::WatchLocked() {
  if (closed_) return;
  if (!watcher_.joinable()) watcher_ = StartThread("mg-session", [this] { Watch(); });
  watch_.notify_one();
}

void Session::Impl::Dispatch(const PreparedStep& prepared, std::span<const Tensor> feeds,
                             uint64_t step, uint32_t count, bool trace, bool caller_computes) {
  if (prepared.parts.empty()) {  // what is fetched is what is fed
    Completion completion;
    {
      std::lock_guard lock(mutex_);
      InFlight& flight = flights_[step % kStepSlots];
      if (flight.active && flight.step == step) completion = FinishLocked(flight);
    }
    completion.Run();
    return;
  }
  const uint64_t first = step - count + 1;
  // Remote parts start first: they work while this process does its own.
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer != kSelf)
      worker_->RunStep(id_, part.peer, part.handle, first, trace, false, count);
  }
  for (uint64_t each = first; each <= step; ++each) {
    for (size_t i = 0; i < feeds.size(); ++i) {
      for (const auto& [peer, edge] : prepared.feeds[i].routes)
        worker_->PushTensor(id_, peer, each, edge, feeds[i]);
    }
  }
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer == kSelf)
      worker_->RunStep(id_, kSelf, part.handle, first, trace, caller_computes, count);
  }
}

Result<std::vector<Tensor>> Session::Impl::RunPrepared(
    const std::shared_ptr<PreparedStep>& prepared, std::span<const Tensor> feeds,
    const RunOptions& options, RunMetadata* metadata) {
  if (options.steps < 1 || (options.steps > 1 && options.trace)) {
    return InvalidArgument(
        "RunOptions: steps is " + std::to_string(options.steps) +
        (options.trace ? " with trace; a trace is of one step" : "; it must be 1 or more"));
  }
  // Two rows at a time: the tasks have the next one when they end one.
  struct Row {
    std::atomic<bool> finished = false;
    Result<std::vector<Tensor>> result = std::vector<Tensor>();
    uint64_t step = 0;
  };
  std::array<Row, 2> rows;
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  const auto deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  auto wait_until = [this](const Row& row, Clock::time_point until) {
    const std::atomic<bool>* finished = &row.finished;
    auto over = [finished] { return finished->load(std::memory_order_acquire); };
    if (worker_->transport() != nullptr) return worker_->transport()->DriveUntil(over, until);
    std::unique_lock lock(mutex_);
    if (until == Clock::time_point::max()) {
      slot_free_.wait(lock, over);
      return true;
    }
    return slot_free_.wait_until(lock, until, over);
  };
  RunOptions row_options = options;
  Status failure;
  size_t begun = 0, ended = 0;
  for (int64_t left = options.steps; ended < begun || (left > 0 && failure.ok());) {
    if (left > 0 && failure.ok() && begun - ended < rows.size()) {
      Row& row = rows[begun % rows.size()];
      const auto count = static_cast<uint32_t>(std::min<int64_t>(left, kMaxStepsInRow));
      row.finished = false;
      failure = Begin(prepared, feeds, row_options, count, nullptr, &row.finished, &row.result,
                      &row.step);
      if (!failure.ok()) continue;
      row_options.step = 0;  // the next rows follow
      left -= count;
      ++begun;
      Dispatch(*prepared, feeds, row.step, count, options.trace, true);
      continue;
    }
    Row& row = rows[ended % rows.size()];
    if (!failure.ok()) Cancel(row.step, failure);
    if (!wait_until(row, deadline)) {
      Expire(row.step);
      // Ends by itself: when every task has stopped, or when the grace is over. Its heartbeats tell
      // of a task that does not even say that it stopped.
      (void)wait_until(row, Clock::time_point::max());
    }
    ++ended;
    if (failure.ok()) failure = row.result.status();
  }
  if (begun == 0) return failure;
  const Row& last = rows[(begun - 1) % rows.size()];
  if (metadata != nullptr) {
    metadata->step_id = last.step;
    if (options.trace && failure.ok()) TraceOf(last.step, *prepared, metadata);
  }
  if (!failure.ok()) return failure;
  return std::move(rows[(begun - 1) % rows.size()].result);
}

bool Session::Impl::OnFetch(uint64_t step, int32_t edge, Tensor& tensor) {
  Completion completion;
  {
    std::lock_guard lock(mutex_);
    InFlight* found = FindLocked(step);
    if (found == nullptr) return false;
    InFlight& flight = *found;
    const std::vector<int32_t>& fetches = flight.prepared->fetch_of_edge;
    if (edge < 0 || static_cast<size_t>(edge) >= fetches.size()) return false;
    const int32_t fetch = fetches[static_cast<size_t>(edge)];
    if (fetch < 0) return false;
    if (step != flight.step) return true;  // only the last one's are asked for
    Tensor& place = flight.fetched[static_cast<size_t>(fetch)];
    if (!place.valid()) {
      place = std::move(tensor);
      --flight.fetches_missing;
    }
    completion = FinishLocked(flight);
  }
  completion.Run();
  return true;
}

void Session::Impl::OnStepDone(uint64_t step, int peer, const Status& status) {
  Completion completion;
  std::vector<int> stop;
  Status cause;
  {
    std::lock_guard lock(mutex_);
    InFlight& flight = flights_[step % kStepSlots];
    if (!flight.active || flight.step != step) return;
    const auto& parts = flight.prepared->parts;
    bool expected = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].peer != peer || flight.part_done[i]) continue;
      flight.part_done[i] = true;
      --flight.parts_missing;
      expected = true;
    }
    if (!expected) return;  // it has no part in the step, or was given up already
    if (!status.ok()) stop = FailLocked(flight, status);
    cause = flight.status;
    completion = FinishLocked(flight);
  }
  Abort(stop, step, cause);
  completion.Run();
}

void Session::Impl::OnStepFailed(uint64_t step, const Status& status) {
  Completion completion;
  std::vector<int> stop;
  uint64_t last = 0;
  {
    std::lock_guard lock(mutex_);
    InFlight* flight = FindLocked(step);
    if (flight == nullptr) return;
    last = flight->step;
    stop = FailLocked(*flight, status);
    completion = FinishLocked(*flight);
  }
  Abort(stop, last, status);
  completion.Run();
}

// Ends a row because of another one's failure.
void Session::Impl::Cancel(uint64_t step, const Status& cause) {
  Completion completion;
  std::vector<int> stop;
  {
    std::lock_guard lock(mutex_);
    InFlight& flight = flights_[step % kStepSlots];
    if (!flight.active || flight.step != step) return;
    stop = FailLocked(flight, cause.AsDerived());
    completion = FinishLocked(flight);
  }
  Abort(stop, step, cause);
  completion.Run();
}

std::vector<int> Session::Impl::FailLocked(InFlight& flight, const Status& status,
                                           std::chrono::milliseconds grace) {
  flight.status.Update(status);
  std::vector<int> stop;
  const auto last = Clock::now() + grace;
  if (!flight.aborting || last < flight.deadline) {
    flight.deadline = last;
    WatchLocked();
  }
  if (std::exchange(flight.aborting, true)) return stop;
  for (size_t i = 0; i < flight.part_done.size(); ++i) {
    const int peer = flight.prepared->parts[i].peer;
    if (!flight.part_done[i] && (peer == kSelf || lost_[static_cast<size_t>(peer)].ok()))
      stop.push_back(peer);
  }
  return stop;
}

void Session::Impl::Abort(const std::vector<int>& peers, uint64_t step, const Status& status) {
  for (int peer : peers) worker_->AbortStep(id_, peer, step, status.AsDerived());
}

Session::Impl::Completion Session::Impl::FinishLocked(InFlight& flight, bool force) {
  Completion completion;
  const bool over =
      flight.parts_missing == 0 && (!flight.status.ok() || flight.fetches_missing == 0);
  if (!over && !force) return completion;
  completion.any = true;
  if (!flight.status.ok()) {
    completion.result = flight.status;
  } else {
    std::vector<Tensor> values;
    const PreparedStep& prepared = *flight.prepared;
    values.reserve(prepared.fetch_index.size());
    for (size_t i = 0; i < prepared.fetch_index.size(); ++i) {
      const int feed = prepared.fetch_of_feed[i];
      values.push_back(feed >= 0 ? flight.feeds[static_cast<size_t>(feed)]
                                 : flight.fetched[static_cast<size_t>(prepared.fetch_index[i])]);
    }
    completion.result = std::move(values);
  }
  completion.done = std::move(flight.done);
  flight.done = nullptr;
  flight.active = false;
  flight.prepared = nullptr;
  flight.fetched.clear();
  flight.feeds.clear();
  running_ -= static_cast<int>(flight.step - flight.first + 1);
  if (flight.step != flight.first) --rows_;
  if (flight.finished != nullptr) {
    *flight.result = std::move(completion.result);
    flight.finished->store(true, std::memory_order_release);
    flight.finished = nullptr;
    if (worker_->transport() != nullptr) worker_->transport()->Wake();
  }
  slot_free_.notify_all();
  return completion;
}

void Session::Impl::Expire(uint64_t step) {
  Completion completion;
  std::vector<int> stop;
  Status status;
  {
    std::lock_guard lock(mutex_);
    InFlight& flight = flights_[step % kStepSlots];
    if (!flight.active || flight.step != step) return;
    std::string missing;
    for (size_t i = 0; i < flight.part_done.size(); ++i) {
      if (!flight.part_done[i])
        missing += (missing.empty() ? "" : ", ") + TaskName(flight.prepared->parts[i].peer);
    }
    if (missing.empty())
      missing = "none, but " + std::to_string(flight.fetches_missing) +
                " fetched tensors are not here yet";
    status = DeadlineExceeded("step " + std::to_string(step) + " did not end within " +
                              Seconds(flight.timeout) + "; tasks still running: " + missing);
    stop = FailLocked(flight, status);
    completion = FinishLocked(flight);
  }
  Abort(stop, step, status);
  completion.Run();
}

void Session::Impl::Watch() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    auto next = Clock::now() + std::chrono::hours(1);
    std::vector<uint64_t> expired;
    std::vector<Completion> forced;
    const auto now = Clock::now();
    for (InFlight& flight : flights_) {
      // The deadline of a synchronous step that has not failed is watched by its caller.
      if (!flight.active || !(flight.done || flight.aborting) ||
          flight.deadline == Clock::time_point::max())
        continue;
      if (flight.deadline > now) {
        next = std::min(next, flight.deadline);
      } else if (!flight.aborting) {
        expired.push_back(flight.step);
      } else {
        forced.push_back(FinishLocked(flight, true));
      }
    }
    if (expired.empty() && forced.empty()) {
      watch_.wait_until(lock, next);
      continue;
    }
    lock.unlock();
    for (uint64_t step : expired) Expire(step);
    for (Completion& completion : forced) completion.Run();
    lock.lock();
  }
}

void Session::Impl::OnTaskLost(int task, const Status& why) {
  std::vector<Completion> completions;
  std::vector<std::pair<uint64_t, std::vector<int>>> stops;
  {
    std::lock_guard lock(mutex_);
    if (static_cast<size_t>(task) >= lost_.size()) return;  // Start looks at the status itself
    lost_[static_cast<size_t>(task)] = why;
    for (InFlight& flight : flights_) {
      if (!flight.active) continue;
      const auto& parts = flight.prepared->parts;
      bool part_of_it = false;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].peer != task || flight.part_done[i]) continue;
        flight.part_done[i] = true;
        --flight.parts_missing;
        part_of_it = true;
      }
      if (!part_of_it) continue;
      stops.emplace_back(flight.step, FailLocked(flight, why, kLostGrace));
      completions.push_back(FinishLocked(flight));
    }
  }
  for (const auto& [step, peers] : stops) Abort(peers, step, why);
  for (Completion& completion : completions) completion.Run();
  worker_->DropPeer(id_, TaskName(task));
  for (size_t other = 0; other < cluster_->tasks().size(); ++other) {
    if (static_cast<int>(other) == task || !cluster_->status(static_cast<int>(other)).ok())
      continue;
    wire::DropPeerRequest request;
    request.set_session(id_);
    request.set_task(TaskName(task));
    cluster_->Notify("DropPeer", static_cast<int>(other), request.SerializeAsString(),
                     kControlTimeout);
  }
}

void Session::Impl::TraceOf(uint64_t step, const PreparedStep& prepared, RunMetadata* metadata) {
  std::vector<TaskTrace> traces;
  std::vector<int> peers;
  std::vector<std::pair<int, std::string>> requests;
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer == kSelf) {
      if (auto trace = worker_->TakeTrace(id_, step))
        traces.push_back({worker_->task(), 0, trace->Events()});
      continue;
    }
    wire::TakeTraceRequest request;
    request.set_session(id_);
    request.set_step(step);
    peers.push_back(part.peer);
    requests.emplace_back(part.peer, request.SerializeAsString());
  }
  std::vector<Result<std::string>> responses;
  if (!requests.empty())
    responses = cluster_->Call("TakeTrace", std::move(requests), kControlTimeout);
  for (size_t i = 0; i < responses.size(); ++i) {
    wire::TakeTraceResponse response;
    Status status = responses[i].status();
    if (status.ok() && !response.ParseFromString(responses[i].value()))
      status = Internal("malformed answer to TakeTrace from " + TaskName(peers[i]));
    if (!status.ok()) {
      metadata->trace_error += (metadata->trace_error.empty() ? "" : "; ") + status.ToString();
      continue;
    }
    TaskTrace trace{.task = TaskName(peers[i]),
                    .clock_offset_ns = -cluster_->ClockOffset(peers[i]),
                    .events = {}};
    for (const wire::TraceEvent& event : response.events()) {
      trace.events.push_back({static_cast<TraceKind>(event.kind()), event.name(), event.op(),
                              event.device(), event.thread(), event.edge(), event.bytes(),
                              event.start_ns(), event.end_ns(), event.id(), event.after()});
    }
    traces.push_back(std::move(trace));
  }
  if (!metadata->trace_error.empty()) {
    LogWarning("the trace of step " + std::to_string(step) +
               " is not complete: " + metadata->trace_error);
  }
  metadata->trace_json = ToChromeJson(traces);
}

Status Session::Impl::Close() {
  std::vector<std::pair<uint64_t, std::vector<int>>> stops;
  const Status closing = Cancelled("Step was cancelled by an explicit call to Session::Close().");
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return Status();
    closing_ = true;
    for (InFlight& flight : flights_) {
      if (flight.active) stops.emplace_back(flight.step, FailLocked(flight, closing));
    }
  }
  slot_free_.notify_all();
  watch_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  for (const auto& [step, peers] : stops) Abort(peers, step, closing);
  Status result;
  {
    std::unique_lock lock(mutex_);
    if (!slot_free_.wait_for(lock, kAbortGrace, [this] { return running_ == 0; })) {
      result = DeadlineExceeded(std::to_string(running_) + " steps did not stop within " +
                                Seconds(kAbortGrace));
    }
  }
  std::vector<Completion> forced;
  {
    std::lock_guard lock(mutex_);
    for (InFlight& flight : flights_) {
      if (flight.active) forced.push_back(FinishLocked(flight, true));
    }
  }
  for (Completion& completion : forced) completion.Run();
  if (cluster_ != nullptr) {
    wire::CloseSessionRequest request;
    request.set_session(id_);
    std::vector<std::pair<int, std::string>> requests;
    for (size_t task = 0; task < cluster_->tasks().size(); ++task) {
      if (cluster_->status(static_cast<int>(task)).ok())
        requests.emplace_back(static_cast<int>(task), request.SerializeAsString());
    }
    for (const Result<std::string>& response :
         cluster_->Call("CloseSession", std::move(requests), kControlTimeout)) {
      // A task that is gone has nothing left to free.
      if (!response.ok() && response.status().code() != Code::kUnavailable)
        result.Update(response.status());
    }
  }
  if (cluster_ != nullptr) cluster_->Close();
  for (int calls = calls_.load(); calls != 0; calls = calls_.load()) calls_.wait(calls);
  master_ = nullptr;
  if (cluster_ != nullptr) cluster_->StopWatching();  // from here on OnTaskLost is not called
  cluster_ = nullptr;
  if (worker_ != nullptr) {
    // NotFound: Start failed before the session was made.
    const Status closed = worker_->CloseSession(id_);
    if (closed.code() != Code::kNotFound) result.Update(closed);
    worker_ = nullptr;
  }
  return result;
}

// ---- the public face

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Local(const Graph& graph, SessionOptions options) {
  auto impl = std::make_unique<Impl>(graph, std::move(options));
  MG_RETURN_IF_ERROR(impl->Start(nullptr));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Result<std::unique_ptr<Session>> Session::Connect(const ClusterSpec& cluster, const Graph& graph,
                                                  SessionOptions options) {
  if (cluster.empty())
    return InvalidArgument("the cluster has no tasks; Session::Local needs none");
  auto impl = std::make_unique<Impl>(graph, std::move(options));
  MG_RETURN_IF_ERROR(impl->Start(&cluster));
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

namespace {

// Names of `outputs`, or the mistake that was made when the graph was built.
Status NamesOf(const std::vector<Output>& outputs, const char* what,
               std::vector<std::string>* names) {
  for (const Output& output : outputs) {
    if (!output.valid()) {
      return InvalidArgument(
          std::string(what) +
          " is not a tensor of a graph; look at the status of the scope that built it");
    }
    names->push_back(output.name());
  }
  return Status();
}

Result<Signature> SignatureOf(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                              const std::vector<Operation>& targets) {
  Signature signature;
  MG_RETURN_IF_ERROR(NamesOf(feeds, "a feed", &signature.feeds));
  MG_RETURN_IF_ERROR(NamesOf(fetches, "a fetch", &signature.fetches));
  for (const Operation& target : targets) {
    if (!target.valid()) {
      return InvalidArgument(
          "a target is not an operation of a graph; look at the status of the scope that built it");
    }
    signature.targets.emplace_back(target.name());
  }
  return signature;
}

}  // namespace

Result<std::vector<Tensor>> Session::Run(const std::vector<Feed>& feeds,
                                         const std::vector<Output>& fetches,
                                         const std::vector<Operation>& targets,
                                         const RunOptions& options, RunMetadata* metadata) {
  std::vector<Output> fed;
  std::vector<Tensor> values;
  for (const auto& [output, value] : feeds) {
    fed.push_back(output);
    values.push_back(value);
  }
  MG_ASSIGN_OR_RETURN(const Callable callable, MakeCallable(fed, fetches, targets));
  return RunCallable(callable, values, options, metadata);
}

Result<std::vector<Tensor>> Session::RunByName(
    const std::vector<std::pair<std::string, Tensor>>& feeds,
    const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
    const RunOptions& options, RunMetadata* metadata) {
  Signature signature{.feeds = {}, .fetches = fetches, .targets = targets};
  std::vector<Tensor> values;
  for (const auto& [name, value] : feeds) {
    signature.feeds.push_back(name);
    values.push_back(value);
  }
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  MG_ASSIGN_OR_RETURN(const auto prepared, impl_->master_->Prepare(signature));
  return impl_->RunPrepared(prepared, values, options, metadata);
}

Result<Callable> Session::MakeCallable(const std::vector<Output>& feeds,
                                       const std::vector<Output>& fetches,
                                       const std::vector<Operation>& targets) {
  MG_ASSIGN_OR_RETURN(const Signature signature, SignatureOf(feeds, fetches, targets));
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  Callable callable;
  MG_ASSIGN_OR_RETURN(callable.prepared_, impl_->master_->Prepare(signature));
  return callable;
}

Result<std::vector<Tensor>> Session::RunCallable(const Callable& callable,
                                                 std::span<const Tensor> feeds,
                                                 const RunOptions& options, RunMetadata* metadata) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  MG_RETURN_IF_ERROR(impl_->CheckCallable(callable.prepared_.get()));
  return impl_->RunPrepared(callable.prepared_, feeds, options, metadata);
}

void Session::RunAsync(const Callable& callable, std::span<const Tensor> feeds, StepDone done,
                       const RunOptions& options) {
  const Impl::Call call(impl_.get());
  Status usable = call.status();
  if (usable.ok()) usable = impl_->CheckCallable(callable.prepared_.get());
  if (!usable.ok()) {
    done(usable);
    return;
  }
  uint64_t step = 0;
  const std::shared_ptr<PreparedStep> prepared = callable.prepared_;
  Status begun;
  if (options.steps != 1) {
    begun = InvalidArgument("RunOptions: RunAsync runs one step, steps is " +
                            std::to_string(options.steps));
  } else {
    begun = impl_->Begin(prepared, feeds, options, 1, done, nullptr, nullptr, &step);
  }
  if (!begun.ok()) {
    done(begun);
    return;
  }
  impl_->Dispatch(*prepared, feeds, step, 1, options.trace, false);
}

const std::vector<DeviceInfo>& Session::devices() const { return impl_->devices_; }

Result<DeviceName> Session::DeviceOf(const Operation& operation) const {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  return impl_->master_->DeviceOf(std::string(operation.name()));
}

Result<std::vector<std::pair<std::string, Graph>>> Session::PartitionsByName(
    const std::vector<std::string>& feeds, const std::vector<std::string>& fetches,
    const std::vector<std::string>& targets) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  MG_ASSIGN_OR_RETURN(
      PartitionedGraph cut,
      impl_->master_->PartitionFor({.feeds = feeds, .fetches = fetches, .targets = targets}));
  std::vector<std::pair<std::string, Graph>> graphs;
  for (Partition& partition : cut.partitions)
    graphs.emplace_back(partition.task.TaskName(), std::move(partition.graph));
  return graphs;
}

Status Session::Reset(const std::vector<std::string>& containers) {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  impl_->worker_->Reset(containers);
  Status result;
  if (impl_->cluster_ != nullptr) {
    wire::ResetRequest request;
    for (const std::string& container : containers) request.add_containers(container);
    std::vector<std::pair<int, std::string>> requests;
    for (size_t task = 0; task < impl_->cluster_->tasks().size(); ++task) {
      requests.emplace_back(static_cast<int>(task), request.SerializeAsString());
    }
    for (const auto& response :
         impl_->cluster_->Call("Reset", std::move(requests), kControlTimeout))
      result.Update(response.status());
  }
  return result;
}

Result<std::vector<TaskStatus>> Session::Tasks() {
  const Impl::Call call(impl_.get());
  MG_RETURN_IF_ERROR(call.status());
  wire::StatusResponse own;
  DescribeTask(*impl_->worker_, &own);
  std::vector<TaskStatus> tasks = {ToTaskStatus(own)};
  if (impl_->cluster_ == nullptr) return tasks;
  const std::vector<RemoteTask>& remote = impl_->cluster_->tasks();
  std::vector<std::pair<int, std::string>> requests;
  for (size_t task = 0; task < remote.size(); ++task)
    requests.emplace_back(static_cast<int>(task), std::string());
  for (const auto& response :
       impl_->cluster_->Call("Status", std::move(requests), kControlTimeout)) {
    MG_RETURN_IF_ERROR(response.status());
    wire::StatusResponse parsed;
    if (!parsed.ParseFromString(response.value())) return Internal("malformed answer to Status");
    tasks.push_back(ToTaskStatus(parsed));
    tasks.back().address = remote[tasks.size() - 2].address;
  }
  return tasks;
}

Status Session::Close() { return impl_->Close(); }

}  // namespace monograph
