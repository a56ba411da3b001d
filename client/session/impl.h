// The inside of Session: opening.cc connects and closes it, steps.cc begins steps and waits for
// them, partial_run.cc runs them in parts, ends.cc ends them, well or not, losses.cc deals with
// lost tasks and lost messages, trace.cc collects their records.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "client/cluster_connection.h"
#include "client/master.h"
#include "client/registries.h"
#include "client/session.h"
#include "client/session/steps_in_flight.h"
#include "executor/step/kernel_runner.h"
#include "executor/worker/worker.h"

namespace monograph {

namespace wire {
class ConnectSessionResponse;
}

class Session::Impl : public StepClient {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kControlTimeout{10};
  // Must exceed what tasks take: WorkerOptions::parts_deadline + Worker::kCloseDeadline + 10 s for
  // the transport's last bytes.
  static constexpr std::chrono::seconds kCloseTimeout{25};
  // How long a step that failed waits for every task to say that it stopped.
  static constexpr std::chrono::milliseconds kAbortGrace{5000};
  // The same after its deadline, which so is passed by a second at most.
  static constexpr std::chrono::milliseconds kTimeoutGrace{1000};
  // The same after a task was lost. It is short: the caller hears of the loss soon, even if another
  // task is inside a long kernel.
  static constexpr std::chrono::milliseconds kLostGrace{100};
  // How often RunOptions::cancelled is asked.
  static constexpr std::chrono::milliseconds kLookUp{50};
  // A step that took less is computed by the caller himself, who cannot be asked meanwhile.
  static constexpr std::chrono::milliseconds kQuick{20};
  // How long a step that is to begin waits until those that are left have renewed what a lost task
  // may have left blocked.
  static constexpr std::chrono::milliseconds kRenewGrace{1000};
  static constexpr std::chrono::milliseconds kSuspectedFor{2000};
  // How long a step whose transfer broke off waits to learn which task was lost, and how often it
  // looks whether none is.
  static constexpr std::chrono::milliseconds kCauseGrace{1000}, kCauseLook{20};

  Impl(const Graph& graph, SessionOptions options) : graph_(graph), options_(std::move(options)) {}
  ~Impl() override { (void)Close(); }
  const Graph& graph() const { return graph_; }

  // ---- opening.cc
  Status Start(const ClusterSpec* cluster);
  Status Close();
  // One call to every daemon, those that are lost left out if `living`; answers in the same order.
  std::vector<Result<std::string>> CallAll(std::string_view method, const std::string& request,
                                           bool living = false,
                                           std::chrono::seconds timeout = kControlTimeout);

  // ---- steps.cc
  // When a call with these options has to end; max(): whenever it does.
  Clock::time_point DeadlineOf(const RunOptions& options) const;
  Result<std::vector<Tensor>> RunSignature(const Signature& signature,
                                           std::span<const Tensor> feeds, const RunOptions& options,
                                           RunMetadata* metadata);
  Result<std::vector<Tensor>> RunPrepared(const std::shared_ptr<PreparedStep>& prepared,
                                          std::span<const Tensor> feeds, const RunOptions& options,
                                          Clock::time_point deadline, RunMetadata* metadata);
  // Begins `count` steps in a row; `steps` gets their ids. `feeds`: as for RunCallable.
  Status Begin(const std::shared_ptr<PreparedStep>& prepared, std::span<const Tensor> feeds,
               const RunOptions& options, uint32_t count, StepInFlight::Listener listener,
               StepIds* steps);
  void Dispatch(const PreparedStep& prepared, std::span<const Tensor> feeds, const StepIds& steps,
                bool trace, bool caller_computes);
  // OK if the callable is one of this session.
  Status CheckCallable(const PreparedStep* prepared) const;
  // OK if these can be fed to `steps` steps.
  Status CheckFeeds(const PreparedStep& prepared, std::span<const Tensor> feeds,
                    int64_t steps) const;
  static Status CheckFeed(const PreparedStep::FeedInfo& info, const Tensor& feed);

  // ---- partial_run.cc
  Result<std::shared_ptr<PartialStep>> BeginPartial(const Signature& signature);
  Result<std::vector<Tensor>> RunPart(const std::shared_ptr<PartialStep>& step,
                                      const std::vector<std::pair<std::string, Tensor>>& feeds,
                                      const std::vector<std::string>& fetches,
                                      const RunOptions& options);
  void CancelPartial(PartialStep& step);

  // ---- ends.cc
  bool OnFetch(uint64_t step, int32_t edge, Tensor& tensor) override;
  void OnStepDone(uint64_t step, int peer, const Status& status) override;
  void OnStepFailed(uint64_t step, const Status& status) override;

  // ---- losses.cc
  void OnPeerLost(int peer, const Status& why) override;
  std::vector<StepSight> InFlight() override;
  PartState ClientPart(uint64_t step) override;
  void OnAwaitedLost(const StepMissing& missing) override;

  // A call of a method of Session that runs: Close waits for those that came before it, later ones
  // are refused.
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

  std::unique_ptr<Worker> worker_;
  Transport* transport_ = nullptr;  // the session's own, of worker_; nullptr in a local session
  std::unique_ptr<ClusterConnection> cluster_;  // nullptr in a local session
  std::unique_ptr<Master> master_;
  std::vector<DeviceInfo> devices_;  // constant after Start

 private:
  // What completes a step that is over, to be run without the mutex.
  struct Completion {
    StepDone done;
    Result<std::vector<Tensor>> result = std::vector<Tensor>();
    std::string failure;  // for the log
    void Run() {
      if (!failure.empty()) LogDebug(failure);
      if (done) done(std::move(result));
    }
  };

  // ---- opening.cc
  Status StartWorker(const ClusterSpec* cluster);
  // `client`: this process as a peer of the tasks.
  Status OpenAtTasks(std::vector<PeerSpec> peers, const PeerSpec& client);
  void LogLanes(std::span<const wire::ConnectSessionResponse> of_tasks) const;
  void StartMaster();
  Status CloseAtTasks();
  std::string TaskName(int peer) const {
    return peer == kSelf ? worker_->task() : cluster_->tasks()[static_cast<size_t>(peer)].task;
  }

  // ---- steps.cc
  // OK if every task that has a part in the step can be reached.
  Status ReachableLocked(const PreparedStep& prepared) const MG_REQUIRES(mutex_);
  bool WaitUntil(const std::atomic<bool>& finished, Clock::time_point until);
  // The same, asking options.cancelled now and then; it may end the step.
  bool WaitOrCancel(const std::atomic<bool>& finished, Clock::time_point until, uint64_t step,
                    const RunOptions& options);

  // ---- partial_run.cc
  // Whether all that the call awaits is here, if the step has not ended.
  bool PartIsHereLocked(const PartialStep& step, const StepInFlight& flight) const
      MG_REQUIRES(mutex_);
  void OnPartialFetchLocked(const StepInFlight& flight) MG_REQUIRES(mutex_);
  Status TakePartLocked(PartialStep& step, const std::vector<std::pair<std::string, Tensor>>& feeds,
                        const std::vector<std::string>& fetches) MG_REQUIRES(mutex_);
  Result<std::vector<Tensor>> EndPartLocked(PartialStep& step) MG_REQUIRES(mutex_);

  // ---- ends.cc
  // Takes note of a failure; returns the peers whose parts must be told to stop. The step ends when
  // they have, or after `grace`.
  std::vector<int> FailLocked(StepInFlight& flight, const Status& status,
                              std::chrono::milliseconds grace = kAbortGrace) MG_REQUIRES(mutex_);
  // True if a step that is over should wait for the loss of a task that explains how it ended.
  bool AwaitCauseLocked(StepInFlight& flight) MG_REQUIRES(mutex_);
  // Whether it may still turn out that the step has ended because a task was lost.
  bool CauseMayComeLocked(const StepInFlight& flight, Clock::time_point now) const
      MG_REQUIRES(mutex_);
  // If the step is over, or if `force`: takes it out of steps_ and returns what completes it.
  Completion FinishLocked(StepInFlight& flight, bool force = false) MG_REQUIRES(mutex_);
  void Abort(const std::vector<int>& peers, uint64_t step, const Status& status)
      MG_EXCLUDES(mutex_);
  // Fails the steps in flight for which `which`, called under mutex_, is true.
  void FailSteps(const Status& why, const std::function<bool(StepInFlight&)>& which);
  void Expire(uint64_t step);
  // The DeadlineExceeded of a step, with what is known of its late parts.
  static Status TimeoutOf(const StepInFlight& flight);
  // Adds to a finished step's status what its late parts have reported since the deadline.
  void ExplainLocked(StepInFlight& flight) const MG_REQUIRES(mutex_);
  void FinishAll();  // ends all steps in flight without waiting for their parts
  // Body of the thread that ends steps at their deadline, and failed steps after their grace
  // period.
  void Watch();
  // Starts Watch if needed, and wakes it if it would look later than at `deadline`.
  void WatchLocked(Clock::time_point deadline) MG_REQUIRES(mutex_);

  // ---- losses.cc
  void OnTaskLost(int task, const Status& why);
  // Body of the thread that deals with the data plane of those that are left, one lost task after
  // the other.
  void Renew();
  void RenewAfter(int lost) MG_EXCLUDES(mutex_);
  // A step under way, between parts that were connected anew, or with collectives in such a part,
  // may await what was held up, and nobody can tell: it has kSuspectedFor to end by itself.
  struct Suspects {
    Clock::time_point until;
    Status why;
    std::vector<uint64_t> steps;  // their last ids
  };
  void SuspectLocked(int lost, const std::vector<int>& renewed) MG_REQUIRES(mutex_);
  void EndSuspects(const Suspects& suspects) MG_EXCLUDES(mutex_);
  // A step that is to begin waits for that, for a moment.
  void AwaitRenewal(Clock::time_point deadline);
  void EndRenewer();
  // What the failure of the part of task `reporter` means, if it says that it lost another task.
  Status JudgedLocked(int reporter, const Status& status) const MG_REQUIRES(mutex_);
  // Who may hold up the messages of tasks that live, as the end of a failure's text; "": nobody.
  std::string HeldUpLocked() const MG_REQUIRES(mutex_);

  // ---- trace.cc
  // If a task's record cannot be fetched, metadata->trace_error names the task; the step still
  // succeeds.
  void TraceOf(uint64_t step, const PreparedStep& prepared, RunMetadata* metadata);

  const Graph& graph_;
  SessionOptions options_;
  const uint64_t id_ = RandomNonZero();
  KernelRegistry gpu_kernels_;  // without factories: what the placer may choose GPUs for
  KernelRunner evaluator_{&DefaultRegistries().kernels};

  Mutex mutex_;
  CondVar slot_free_;  // a step ended, a renewal did, or the session closed
  CondVar watch_;
  StepsInFlight steps_ MG_GUARDED_BY(mutex_);
  bool closed_ MG_GUARDED_BY(mutex_) = false;
  std::vector<Status> lost_ MG_GUARDED_BY(mutex_);         // by task
  std::vector<bool> shares_memory_ MG_GUARDED_BY(mutex_);  // by task: with this process
  // Of the tasks' transports, then of this process's own; empty until all are connected.
  std::vector<std::string> addresses_ MG_GUARDED_BY(mutex_);
  std::deque<int> to_renew_ MG_GUARDED_BY(mutex_);  // lost tasks, the first being dealt with
  std::deque<Suspects> suspects_ MG_GUARDED_BY(mutex_);
  // When the data plane was made anew last: after whose loss, and the last step in flight then.
  int renewed_after_ MG_GUARDED_BY(mutex_) = -1;
  uint64_t last_before_renewal_ MG_GUARDED_BY(mutex_) = 0;
  bool renewer_ends_ MG_GUARDED_BY(mutex_) = false;
  CondVar renewals_;
  std::thread renewer_;
  std::thread watcher_;
  Clock::time_point watch_next_ MG_GUARDED_BY(mutex_) = Clock::time_point::max();

  // Sequentially consistent: a Call counts itself and then reads closing_, Close sets closing_ and
  // then reads calls_. One of the two must see what the other has written.
  std::atomic<bool> closing_ = false;
  std::atomic<int> calls_ = 0;
};

}  // namespace monograph
