// The trainer's start (who initialises, who waits for whom), and its loops: one after another, in
// rows that the executors run by themselves, several in flight, or one per asynchronous replica on
// a thread of its own. All of them end in Train: with a failure, at the step asked for, or where
// the data ends, which FinishData tells the other clients. Loops pull their batches; nothing is fed
// ahead, so that a batch's number alone says which values a step draws.
#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>

#include "base/duration.h"
#include "base/first_failure.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "ops/job_run/job_run.h"
#include "ops/variable/variable.h"
#include "train/hooks.h"
#include "train/sync_replicas.h"

namespace monograph {
namespace {

using Clock = std::chrono::steady_clock;

// Initialising is one step, too; its number comes before all others.
constexpr uint64_t kInitStep = uint64_t{1} << 19;
// Between two training steps there is room for a million others (evaluation, the chief's updates).
constexpr uint64_t kStride = (uint64_t{1} << 20) + 1;

// How often a waiting client looks, and how often it says what it waits for.
constexpr std::chrono::milliseconds kLookEvery(100), kSayEvery(5000);
// Between two attempts at the session of a replica whose worker is lost, which may be there without
// its GPU.
constexpr std::chrono::milliseconds kReconnectEvery(500);
// How long the chief waits, at the end, for the step that says so to workers that come late.
constexpr std::chrono::seconds kFinishTimeout(2);

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// The end of the data is the end of training, not a failure.
bool DataHasEnded(const Status& status) { return status.code() == Code::kOutOfRange; }

// Steps that run: at most `size` at a time. Keeps the first failure and, apart from it, the end of
// the data.
class Window {
 public:
  explicit Window(int size) : size_(size), free_(size) {}

  // False: no further step is to begin.
  bool Enter() {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) { return free_ > 0; });
    const bool go_on = status_.ok() && end_.ok();
    if (go_on) --free_;
    return go_on;
  }
  void Leave(const Status& status) {
    MutexLock lock(mutex_);
    ++free_;
    (DataHasEnded(status) ? end_ : status_).Update(status);
    changed_.NotifyAll();  // under the lock: the window may be gone right after
  }
  Status end() {
    MutexLock lock(mutex_);
    return end_;
  }
  Status WaitForAll() {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) { return free_ == size_; });
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  const int size_;
  int free_ MG_GUARDED_BY(mutex_);
  Status status_ MG_GUARDED_BY(mutex_), end_ MG_GUARDED_BY(mutex_);
};

}  // namespace

uint64_t StepNumber(int64_t batch) { return (static_cast<uint64_t>(batch) + 1) * kStride; }

// What runs over and over: a signature, and the batch that comes next.
struct Trainer::Loop {
  int index = 0;
  Outputs feeds;
  Outputs fetches;  // results, then the count of updates
  Operation train;
  Callable callable;
  Callable quiet;  // fetches nothing; with steps_per_run
  int64_t next_batch = 0;
  Status end;                    // OutOfRange: its data has ended, in this call of Train
  bool lost = false;             // its worker, while others train beside it
  std::unique_ptr<Session> own;  // once its worker has come back
};

Trainer::Trainer(Session* session, const ReplicatedStep& step, std::vector<Outputs> feeds,
                 FeedFn feed, TrainerOptions options)
    : session_(session), step_(step), feed_(std::move(feed)), options_(std::move(options)) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    Loop loop;
    loop.index = static_cast<int>(i);
    loop.feeds = std::move(feeds[i]);
    const bool own = !step_.train.valid() && i < step_.towers.size();
    loop.fetches = own ? step_.towers[i].results : step_.results;
    loop.fetches.push_back(own ? step_.towers[i].updates : step_.updates);
    loop.train = own ? step_.towers[i].train : step_.train;
    loops_.push_back(std::move(loop));
  }
  hooks_ = options_.hooks;
  if (step_.options.rank == 0)
    hooks_.insert(hooks_.end(), options_.chief_only_hooks.begin(), options_.chief_only_hooks.end());
}

Trainer::~Trainer() {
  if (!step_.run.finish.valid() || !said_ready_ || failed_) return;
  (void)session_->Run({}, {}, {step_.run.finish}, {.timeout = kFinishTimeout});
}

void Trainer::Say(const std::string& text) const {
  if (options_.say) {
    options_.say(text);
  } else {
    LogInfo(text);
  }
}

Status Trainer::Start() {
  failed_ = true;  // until all is done
  if (options_.steps_in_flight > 1 && step_.options.num_workers > 1) {
    return InvalidArgument("steps in flight are for one client; several clients overlap as it is");
  }
  if (options_.steps_in_flight > 1 && !hooks_.empty()) {
    return InvalidArgument("hooks run between steps; there are " +
                           std::to_string(options_.steps_in_flight) + " in flight");
  }
  if (options_.steps_per_run > 1 && (options_.steps_in_flight > 1 || loops_.size() > 1)) {
    return InvalidArgument("steps per run are for one loop with one step in flight; there are " +
                           std::to_string(loops_.size()) + " loops with " +
                           std::to_string(options_.steps_in_flight));
  }
  if (options_.steps_per_run > 1 && step_.sync != nullptr) {
    return InvalidArgument(
        "steps per run are not for clients that keep in step by parameter servers: each step waits "
        "there for the chief's update, of which only one server hears");
  }
  const size_t wanted = step_.train.valid() ? 1 : step_.towers.size();
  if (loops_.size() != wanted) {
    return InvalidArgument("feeds for " + std::to_string(loops_.size()) + " loops; this step has " +
                           std::to_string(wanted));
  }
  MG_RETURN_IF_ERROR(step_.init.valid() ? Initialize() : WaitForModel());
  if (step_.parting.unmark.valid())
    MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.parting.unmark}).status());
  if (step_.start.valid()) MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.start}).status());
  if (step_.sync != nullptr && step_.options.rank == 0) {
    MG_ASSIGN_OR_RETURN(runner_, SyncReplicasRunner::Start(session_, *step_.sync));
  }
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> counted,
                      session_->Run({}, {step_.global_step.value}));
  global_step_ = counted[0].scalar<int64_t>();
  const int64_t beside =
      step_.options.async
          ? std::max<int64_t>(static_cast<int64_t>(loops_.size()), step_.options.num_workers)
          : 1;
  for (Loop& loop : loops_) {
    MG_ASSIGN_OR_RETURN(loop.callable,
                        session_->MakeCallable(loop.feeds, loop.fetches, {loop.train}));
    if (options_.steps_per_run > 1) {
      MG_ASSIGN_OR_RETURN(loop.quiet, session_->MakeCallable(loop.feeds, {}, {loop.train}));
    }
    loop.next_batch = global_step_ / beside;
  }
  if (global_step_ > 0) Say("Going on at global step " + std::to_string(global_step_));
  failed_ = false;
  return Status();
}

Result<std::vector<std::string>> Trainer::Uninitialized() {
  if (step_.initialized.empty()) return std::vector<std::string>();
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> ready, session_->Run({}, step_.initialized));
  std::vector<std::string> missing;
  for (size_t i = 0; i < ready.size(); ++i) {
    if (ready[i].scalar<bool>()) continue;
    missing.push_back(i < step_.shared.size() ? step_.shared[i].name
                                              : step_.sync->options.name + "'s first step");
  }
  return missing;
}

Result<JobRunJoined> Trainer::JoinRun(bool rejoin) {
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> joined,
                      session_->Run({}, {rejoin ? step_.run.rejoin : step_.run.join}));
  return static_cast<JobRunJoined>(joined[0].scalar<int32_t>());
}

Status Trainer::Initialize() {
  const auto init = [this]() -> Status {
    MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.init}, {.step = kInitStep}).status());
    if (!options_.init_fn) return Status();
    MG_RETURN_IF_ERROR(options_.init_fn(session_));
    // The accumulators begin at the global step that is there now.
    if (step_.sync == nullptr) return Status();
    return session_->Run({}, {}, {step_.sync->chief_init}).status();
  };
  if (step_.shared.empty()) return init();
  if (options_.join) {
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> missing, Uninitialized());
    MG_ASSIGN_OR_RETURN(const JobRunJoined joined, JoinRun(true));
    if (missing.empty() && (joined == JobRunJoined::kJoined || joined == JobRunJoined::kRejoined)) {
      if (step_.sync != nullptr)
        MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.sync->chief_init}).status());
      return SayReady();
    }
  }
  // Until the variables are initialised, no other client may take the old values for the model.
  MG_RETURN_IF_ERROR(session_->Run({}, {}, {step_.run.begin}).status());
  MG_RETURN_IF_ERROR(init());
  return SayReady();
}

Status Trainer::SayReady() {
  // Kept while this client trains: when its signature is deregistered, the chief counts as gone.
  MG_ASSIGN_OR_RETURN(ready_, session_->MakeCallable({}, {}, {step_.run.ready}));
  MG_RETURN_IF_ERROR(session_->RunCallable(ready_, {}).status());
  said_ready_ = true;
  return Status();
}

bool Trainer::NeedsAll() const {
  return step_.sync != nullptr &&
         step_.sync->options.replicas_to_aggregate == step_.sync->options.total_num_replicas;
}

// When this replica was lost, an update may have applied its gradients of some variables and not of
// others. So every client goes back to a checkpoint, or ends.
Status Trainer::BeginAllAnew() {
  const SyncReplicasOptions& options = step_.sync->options;
  const auto rank = static_cast<size_t>(options.rank);
  const std::string name = rank < options.replica_names.size()
                               ? " (" + options.replica_names[rank] + ")"
                               : std::string();
  const std::string why = "replica " + std::to_string(rank) + name +
                          " has come back; all replicas go back to the last checkpoint";
  return session_
      ->Run({{step_.sync->close_code, Tensor::Scalar(static_cast<int32_t>(Code::kAborted))},
             {step_.sync->close_message, Tensor::String(why)}},
            {}, {step_.sync->close})
      .status();
}

Status Trainer::WaitForModel() {
  if (step_.shared.empty()) return Status();
  const auto begin = Clock::now(), until = begin + options_.start_timeout;
  auto say_at = begin;
  while (true) {
    MG_ASSIGN_OR_RETURN(const std::vector<std::string> missing, Uninitialized());
    std::string what = "Waiting for model to be ready: variables not initialized: " + Join(missing);
    std::string lacks = "the chief (worker 0) has not initialized them";
    if (missing.empty()) {
      MG_ASSIGN_OR_RETURN(const JobRunJoined joined, JoinRun(options_.join));
      const bool back = joined == JobRunJoined::kRejoined;
      if (joined == JobRunJoined::kJoined || (back && !NeedsAll())) return Status();
      if (back) MG_RETURN_IF_ERROR(BeginAllAnew());
      what = "Waiting for model to be ready: the chief (worker 0) is initializing it";
      lacks = "it has not ended";
      if (joined == JobRunJoined::kLeftOver) {
        what =
            "Waiting for model to be ready: the variables that are there were left by a run whose "
            "chief (worker 0) is gone";
        lacks =
            "no chief has initialized them anew (to come back to that run, join it by the name of "
            "its container)";
      }
    }
    const auto now = Clock::now();
    if (now >= say_at) {
      Say(what);
      say_at = now + kSayEvery;
    }
    if (now >= until) {
      return DeadlineExceeded(what + "; " + lacks + " within " + Seconds(options_.start_timeout));
    }
    std::this_thread::sleep_for(kLookEvery);  // nothing tells of another client's assignment
  }
}

Result<std::vector<Tensor>> Trainer::RunLoop(const Loop& loop, int64_t first, int count,
                                             std::span<const Tensor> feeds,
                                             const RunOptions& options, RunMetadata* metadata) {
  RunOptions numbered = options;
  Session* const session = loop.own != nullptr ? loop.own.get() : session_;
  const std::span<const Tensor> last = feeds.last(loop.feeds.size());
  if (count > 1) {
    numbered.step = StepNumber(first);
    numbered.step_stride = kStride;
    numbered.steps = count - 1;
    MG_RETURN_IF_ERROR(
        session->RunCallable(loop.quiet, feeds.first(feeds.size() - last.size()), numbered)
            .status());
    numbered.steps = 1;
  }
  if (loops_.size() == 1) numbered.step = StepNumber(first + count - 1);
  return session->RunCallable(loop.callable, last, numbered, metadata);
}

Result<TrainedStep> Trainer::Step(Loop& loop, int count, const RunOptions& options,
                                  RunMetadata* metadata) {
  const int64_t first = loop.next_batch;
  std::vector<Tensor> feeds;
  for (int64_t batch = first; batch < first + count; ++batch) {
    Result<std::vector<Tensor>> fed = feed_(loop.index, batch);
    if (DataHasEnded(fed.status()) && batch > first) {
      loop.end = fed.status();
      count = static_cast<int>(batch - first);  // those that are there are trained on
      break;
    }
    MG_RETURN_IF_ERROR(fed.status());
    if (fed->size() != loop.feeds.size()) {
      return InvalidArgument("batch " + std::to_string(batch) + " has " +
                             std::to_string(fed->size()) + " tensors for " +
                             std::to_string(loop.feeds.size()) + " feeds");
    }
    std::move(fed->begin(), fed->end(), std::back_inserter(feeds));
  }
  loop.next_batch += count;
  TrainedStep step{.loop = loop.index, .batch = loop.next_batch - 1, .steps = count};
  step.begin = Clock::now();
  Result<std::vector<Tensor>> results = RunLoop(loop, first, count, feeds, options, metadata);
  if (!results.ok()) {
    return step_.sync == nullptr ? results.status()
                                 : ExplainWait(session_, *step_.sync, results.status());
  }
  step.end = Clock::now();
  step.results = std::move(results).value();
  TakeCount(&step);
  return step;
}

void Trainer::TakeCount(TrainedStep* step) {
  step->global_step = step->results.back().scalar<int64_t>() + 1;
  step->results.pop_back();
  int64_t known = global_step_.load();
  while (known < step->global_step &&
         !global_step_.compare_exchange_weak(known, step->global_step)) {
  }
}

Status Trainer::Train(int64_t until, const StepFn& on_step) {
  stop_ = false;
  for (Loop& loop : loops_) loop.end = Status();
  Status status;
  for (size_t i = 0; i < hooks_.size() && status.ok(); ++i)
    status = hooks_[i]->Begin(session_, global_step_);
  if (status.ok()) status = TrainLoops(until, on_step);
  if (status.ok()) status = FinishData();
  for (size_t i = 0; i < hooks_.size() && status.ok(); ++i)
    status = hooks_[i]->End(session_, global_step_);
  if (!status.ok()) failed_ = true;
  return status;
}

Status Trainer::Report(const TrainedStep& step, const StepFn& on_step) {
  if (on_step) on_step(step);
  for (const auto& hook : hooks_) {
    HookContext context{.session = session_, .step = step};
    MG_RETURN_IF_ERROR(hook->AfterStep(&context));
    if (context.stop) stop_ = true;
  }
  return Status();
}

Status Trainer::TrainLoops(int64_t until, const StepFn& on_step) {
  if (loops_.size() > 1) return TrainBeside(until, on_step);
  if (options_.steps_in_flight > 1) return TrainInFlight(until, on_step);
  Loop& loop = loops_[0];
  while (global_step_ < until && !stop_ && loop.end.ok()) {
    const int64_t count = std::min<int64_t>(options_.steps_per_run, until - global_step_);
    const Result<TrainedStep> step = Step(loop, static_cast<int>(count));
    if (DataHasEnded(step.status())) {
      loop.end = step.status();
      break;
    }
    MG_RETURN_IF_ERROR(step.status());
    MG_RETURN_IF_ERROR(Report(*step, on_step));
  }
  return Status();
}

Status Trainer::FinishData() {
  const auto ended =
      std::find_if(loops_.begin(), loops_.end(), [](const Loop& loop) { return !loop.end.ok(); });
  if (ended == loops_.end()) return Status();
  // The other clients would wait for this one's part of a step: they end, too.
  if (step_.finish.valid()) {
    const Status told = session_->Run({}, {}, {step_.finish}).status();
    if (!DataHasEnded(told)) MG_RETURN_IF_ERROR(told);
  }
  // A row of steps may have ended before its last step.
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> counted,
                      session_->Run({}, {step_.global_step.value}));
  global_step_ = std::max(global_step_.load(), counted[0].scalar<int64_t>());
  Say("The data has ended at global step " + std::to_string(global_step_) + ": " +
      ended->end.message());
  return Status();
}

// The failure is the loss of the task that the loop's replica is on, which other loops do not need.
bool Trainer::LostItsWorker(const Loop& loop, const Status& failure) const {
  const Result<DeviceName> device =
      session_->DeviceOf(step_.towers[static_cast<size_t>(loop.index)].call);
  return device.ok() && device->TaskName() == failure.lost_task();
}

Status Trainer::Reconnect(Loop& loop) {
  loop.callable = {};  // before its session is destroyed
  loop.own = nullptr;
  MG_ASSIGN_OR_RETURN(loop.own, options_.reconnect());
  MG_ASSIGN_OR_RETURN(loop.callable,
                      loop.own->MakeCallable(loop.feeds, loop.fetches, {loop.train}));
  return Status();
}

Status Trainer::TrainBeside(int64_t until, const StepFn& on_step) {
  Mutex mutex;  // one reports at a time
  FirstFailure first;
  std::atomic<bool> stop = false;  // default order: read once per step
  // How many loops go on, those not counted that wait for their workers.
  const auto training = [this] {
    return std::count_if(loops_.begin(), loops_.end(),
                         [](const Loop& loop) { return !loop.lost && loop.end.ok(); });
  };
  std::vector<std::thread> threads;
  for (Loop& loop : loops_) {
    if (loop.lost && !options_.reconnect) continue;
    threads.push_back(StartThread("mg-train-" + std::to_string(loop.index), [&] {
      const std::string name = "replica " + std::to_string(loop.index);
      while (!stop.load() && !stop_ && global_step_ < until) {
        if (loop.lost) {  // only this thread changes it
          if (!Reconnect(loop).ok()) {
            std::this_thread::sleep_for(kReconnectEvery);  // nothing tells of a task that comes up
            continue;
          }
          MutexLock lock(mutex);
          loop.lost = false;
          Say("Going on with " + name + ": its worker is back");
        }
        const Result<TrainedStep> step = Step(loop);
        MutexLock lock(mutex);
        if (step.ok()) {
          const Status reported = Report(*step, on_step);
          first.Update(reported);
          if (!reported.ok()) stop = true;
          continue;
        }
        if (DataHasEnded(step.status())) {
          loop.end = step.status();
          // The others go on with their data, but not those that only wait for their workers.
          if (training() == 0) stop = true;
          return;
        }
        if (LostItsWorker(loop, step.status()) && training() > 1) {
          loop.lost = true;
          Say("Going on without " + name + ": " + step.status().message());
          if (!options_.reconnect) return;
          continue;
        }
        first.Update(step.status());
        stop = true;
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  return first.status();
}

Status Trainer::TrainInFlight(int64_t until, const StepFn& on_step) {
  Loop& loop = loops_[0];
  Window window(options_.steps_in_flight);
  Mutex mutex;  // of on_step
  Status status;
  for (int64_t started = global_step_; started < until; ++started) {
    TrainedStep step{.loop = 0, .batch = loop.next_batch};
    Result<std::vector<Tensor>> feeds = feed_(0, step.batch);
    if (DataHasEnded(feeds.status())) loop.end = feeds.status();
    if (status = feeds.status(); !status.ok() || !window.Enter()) break;
    ++loop.next_batch;
    step.begin = Clock::now();
    session_->RunAsync(loop.callable, *feeds,
                       [this, step, &mutex, &on_step, &window,
                        kept = *feeds](Result<std::vector<Tensor>> results) mutable {
                         const Status ended = results.status();
                         if (ended.ok()) {
                           step.end = Clock::now();
                           step.results = std::move(results).value();
                           TakeCount(&step);
                           MutexLock lock(mutex);
                           if (on_step) on_step(step);
                         }
                         window.Leave(ended);
                       },
                       {.step = StepNumber(step.batch)});
  }
  if (!loop.end.ok()) status = Status();
  status.Update(window.WaitForAll());  // also after a failure: running steps refer to the window
  loop.end.Update(window.end());
  return status;
}

Result<std::string> Trainer::TraceStep() {
  if (loops_.size() != 1) return FailedPrecondition("one step of many loops cannot be traced");
  RunMetadata metadata;
  MG_RETURN_IF_ERROR(Step(loops_[0], 1, {.trace = true}, &metadata).status());
  return std::move(metadata.trace_json);
}

Result<std::vector<double>> Trainer::TimeTowers(int rounds) {
  if (loops_.size() != 1) return FailedPrecondition("only replicas that keep in step are timed");
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> feeds, feed_(0, 0));
  std::vector<Callable> calls;
  for (const TowerStep& tower : step_.towers) {
    MG_ASSIGN_OR_RETURN(Callable call, session_->MakeCallable(loops_[0].feeds, {}, {tower.call}));
    calls.push_back(std::move(call));
  }
  std::vector<double> seconds(calls.size());
  std::vector<Status> failures(calls.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < calls.size(); ++i) {
    threads.push_back(StartThread("mg-time-" + std::to_string(i), [&, i] {
      for (int round = 0; round < rounds && failures[i].ok(); ++round) {
        const auto begin = Clock::now();
        failures[i] = session_->RunCallable(calls[i], feeds).status();
        const double took = std::chrono::duration<double>(Clock::now() - begin).count();
        if (round == 0 || took < seconds[i]) seconds[i] = took;
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& failure : failures) MG_RETURN_IF_ERROR(failure);
  return seconds;
}

}  // namespace monograph
