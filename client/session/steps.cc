// How a step begins. Feeds are checked, Begin takes free slots and numbers for the step, Dispatch
// starts its parts and sends the feeds, and RunPrepared computes this process's part, unless a
// deadline forbids, and waits, driving the transport on the caller's own thread, so that fetches
// need not be handed over by another one. Several steps of one
// call go in rows: the tasks run a row of steps by themselves, and only its last step is reported
// back.
#include <algorithm>

#include "base/duration.h"
#include "client/session/impl.h"
#include "executor/worker/step_message.h"

namespace monograph {

Status Session::Impl::CheckCallable(const PreparedStep* prepared) const {
  if (prepared == nullptr)
    return InvalidArgument("the callable is empty; make one with MakeCallable");
  if (prepared->session != id_) {
    return InvalidArgument(
        "the callable was made by another session, whose handles mean nothing to this one; make "
        "one with this session's MakeCallable");
  }
  return Status();
}

Status Session::Impl::CheckFeeds(const PreparedStep& prepared, std::span<const Tensor> feeds,
                                 int64_t steps) const {
  const size_t all = prepared.feeds.size() * static_cast<size_t>(steps);
  if (feeds.size() != prepared.feeds.size() && feeds.size() != all) {
    return InvalidArgument(std::to_string(feeds.size()) + " tensors fed to a signature of " +
                           std::to_string(prepared.feeds.size()) +
                           (steps > 1 ? "; " + std::to_string(steps) +
                                            " steps take these once, or " + std::to_string(all)
                                      : ""));
  }
  for (size_t i = 0; i < feeds.size(); ++i)
    MG_RETURN_IF_ERROR(CheckFeed(prepared.feeds[i % prepared.feeds.size()], feeds[i]));
  return Status();
}

Status Session::Impl::CheckFeed(const PreparedStep::FeedInfo& info, const Tensor& feed) {
  if (feed.dtype() == info.dtype && info.shape.Accepts(feed.shape())) return Status();
  return InvalidArgument("cannot feed " + std::string(DTypeName(feed.dtype())) +
                         feed.shape().ToString() + " for tensor '" + info.name +
                         "', which has type and shape " + std::string(DTypeName(info.dtype)) +
                         info.shape.ToString());
}

Status Session::Impl::ReachableLocked(const PreparedStep& prepared) const {
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer != kSelf) MG_RETURN_IF_ERROR(lost_[static_cast<size_t>(part.peer)]);
  }
  return Status();
}

Session::Impl::Clock::time_point Session::Impl::DeadlineOf(const RunOptions& options) const {
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  return timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
}

Result<std::vector<Tensor>> Session::Impl::RunSignature(const Signature& signature,
                                                        std::span<const Tensor> feeds,
                                                        const RunOptions& options,
                                                        RunMetadata* metadata) {
  const auto deadline = DeadlineOf(options);
  MG_ASSIGN_OR_RETURN(const auto prepared, master_->Prepare(signature, deadline));
  return RunPrepared(prepared, feeds, options, deadline, metadata);
}

Status Session::Impl::Begin(const std::shared_ptr<PreparedStep>& prepared,
                            std::span<const Tensor> feeds, const RunOptions& options,
                            uint32_t count, StepInFlight::Listener listener, StepIds* steps) {
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  const auto deadline = DeadlineOf(options);
  MutexLock lock(mutex_);
  const auto may_begin = [&]() MG_REQUIRES(mutex_) { return closed_ || steps_.HasRoom(count); };
  if (!may_begin()) {
    const auto until = std::min(deadline, Clock::now() + std::chrono::hours(24));
    if (!slot_free_.WaitUntil(mutex_, until, may_begin)) {
      return DeadlineExceeded("no step of the " + std::to_string(steps_.size()) +
                              " in flight ended within " + Seconds(timeout));
    }
  }
  if (closed_) return FailedPrecondition("Session is closed.");
  if (Status lost = ReachableLocked(*prepared); !lost.ok()) {
    lock.Unlock();
    LogDebug("a step that was to begin failed: " + lost.ToString());
    return lost;
  }
  MG_ASSIGN_OR_RETURN(StepInFlight* const flight,
                      steps_.Begin(options.step, count, options.step_stride));
  *steps = flight->steps;
  flight->Expect(prepared);
  if (prepared->returns_feeds)
    flight->feeds.assign(feeds.end() - static_cast<ptrdiff_t>(prepared->feeds.size()), feeds.end());
  flight->deadline = deadline;
  flight->timeout = timeout;
  flight->listener = std::move(listener);
  // The caller may be inside a kernel of this process's own part then.
  if (deadline != Clock::time_point::max()) WatchLocked(deadline);
  return Status();
}

void Session::Impl::Dispatch(const PreparedStep& prepared, std::span<const Tensor> feeds,
                             const StepIds& steps, bool trace, bool caller_computes) {
  if (prepared.parts.empty()) {  // what is fetched is what is fed
    Completion completion;
    {
      MutexLock lock(mutex_);
      if (StepInFlight* const flight = steps_.FindLast(steps.last))
        completion = FinishLocked(*flight);
    }
    completion.Run();
    return;
  }
  // Remote parts start first: they work while this process does its own.
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer != kSelf) worker_->SendRunStep(id_, part.peer, part.handle, steps, trace, false);
  }
  const size_t fed = prepared.feeds.size();
  for (uint32_t k = 0; k < steps.count(); ++k) {
    const std::span<const Tensor> of_step =
        feeds.size() == fed ? feeds : feeds.subspan(k * fed, fed);
    for (size_t i = 0; i < fed; ++i) {
      for (const auto& [peer, edge] : prepared.feeds[i].routes)
        worker_->SendTensor(id_, peer, steps.first + k * steps.stride, edge, of_step[i]);
    }
  }
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer == kSelf)
      worker_->SendRunStep(id_, kSelf, part.handle, steps, trace, caller_computes);
  }
}

bool Session::Impl::WaitUntil(const std::atomic<bool>& finished, Clock::time_point until) {
  auto over = [&finished] { return finished.load(std::memory_order_acquire); };
  if (transport_ != nullptr) return transport_->DriveUntil(over, until);
  MutexLock lock(mutex_);
  if (until == Clock::time_point::max()) {
    slot_free_.Wait(mutex_, over);
    return true;
  }
  return slot_free_.WaitUntil(mutex_, until, over);
}

bool Session::Impl::WaitOrCancel(const std::atomic<bool>& finished, Clock::time_point until,
                                 uint64_t step, const RunOptions& options) {
  if (!options.cancelled) return WaitUntil(finished, until);
  while (!WaitUntil(finished, std::min(until, Clock::now() + kLookUp))) {
    if (Clock::now() >= until) return false;
    if (!options.cancelled()) continue;
    OnStepFailed(step, Cancelled("step " + std::to_string(StepNumberOf(step)) +
                                 " was cancelled by its caller"));
    return WaitUntil(finished, Clock::time_point::max());  // ends as after Expire
  }
  return true;
}

Result<std::vector<Tensor>> Session::Impl::RunPrepared(
    const std::shared_ptr<PreparedStep>& prepared, std::span<const Tensor> feeds,
    const RunOptions& options, Clock::time_point deadline, RunMetadata* metadata) {
  if (options.steps < 1 || (options.steps > 1 && options.trace)) {
    return InvalidArgument(
        "RunOptions: steps is " + std::to_string(options.steps) +
        (options.trace ? " with trace; a trace is of one step" : "; it must be 1 or more"));
  }
  if (options.step_stride == 0) return InvalidArgument("RunOptions: step_stride is 0");
  MG_RETURN_IF_ERROR(CheckFeeds(*prepared, feeds, options.steps));
  std::vector<Tensor> own;
  if (options.borrowed_feeds && prepared->keeps_feeds) {
    for (const Tensor& feed : feeds) {
      MG_ASSIGN_OR_RETURN(Tensor copy, feed.Clone());
      own.push_back(std::move(copy));
    }
    feeds = own;
  }
  AwaitRenewal(deadline);
  // Who may cancel looks up now and then: he leaves long steps to the inter-op threads, too.
  const auto begin = options.cancelled ? Clock::now() : Clock::time_point();
  const bool caller_looks_up =
      options.cancelled && !prepared->quick.load(std::memory_order_relaxed);
  RunOptions row_options = options;
  std::atomic<bool> finished = false;
  Result<std::vector<Tensor>> result = std::vector<Tensor>();
  StepIds steps;
  const size_t fed = prepared->feeds.size();
  const bool own_feeds = feeds.size() != fed;
  // One row at a time: two rows in flight would run side by side.
  for (int64_t left = options.steps; left > 0 && result.ok();) {
    const auto count = static_cast<uint32_t>(std::min<int64_t>(left, kMaxStepsInRow));
    const std::span<const Tensor> of_row =
        own_feeds ? feeds.subspan(static_cast<size_t>(options.steps - left) * fed, count * fed)
                  : feeds;
    finished = false;  // default order: once per row
    MG_RETURN_IF_ERROR(Begin(prepared, of_row, row_options, count,
                             {.finished = &finished, .result = &result}, &steps));
    if (options.step > 0) row_options.step = StepNumberOf(steps.last) + options.step_stride;
    left -= count;
    // With a deadline the caller has to come back by then: it leaves to the inter-op threads what
    // may take long and perhaps cannot be cut short.
    Dispatch(*prepared, of_row, steps, options.trace,
             /*caller_computes=*/deadline == Clock::time_point::max() && !caller_looks_up);
    if (!WaitOrCancel(finished, deadline, steps.last, options)) {
      Expire(steps.last);
      // This wait needs no deadline: the step ends when every task has stopped or when the grace
      // period is over. A task that does not even report that it stopped is detected by heartbeats.
      (void)WaitUntil(finished, Clock::time_point::max());
    }
  }
  if (options.cancelled) {
    // Relaxed: a guess.
    prepared->quick.store(result.ok() && Clock::now() - begin < kQuick, std::memory_order_relaxed);
  }
  if (metadata != nullptr) {
    metadata->step_id = StepNumberOf(steps.last);
    if (options.trace && result.ok()) TraceOf(steps.last, *prepared, metadata);
  }
  return result;
}

}  // namespace monograph
