#include <algorithm>

#include "base/duration.h"
#include "client/session/impl.h"
#include "executor/step_message.h"

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

Status Session::Impl::ReachableLocked(const PreparedStep& prepared) const {
  if (Transport* transport = worker_->transport()) MG_RETURN_IF_ERROR(transport->Health());
  for (const PreparedStep::Part& part : prepared.parts) {
    if (part.peer != kSelf) MG_RETURN_IF_ERROR(lost_[static_cast<size_t>(part.peer)]);
  }
  return Status();
}

uint64_t Session::Impl::NextLocked(uint64_t wanted, uint32_t count) const {
  if (wanted > 0) return wanted;
  uint64_t step = last_step_ + 1;
  if (count > 1 || rows_ > 0) return step;
  // Steps that wait for long (for a queue) keep their slots: others go around them. Steps whose
  // numbers the caller gives cannot; so these keep out of the slots that such steps need next.
  if (last_given_ > 0) step = std::max(step, last_given_ + kStepSlots / 2);
  while (flights_[step % kStepSlots].active) ++step;
  return step;
}

bool Session::Impl::RoomLocked(uint64_t last, uint32_t count) const {
  if (running_ + static_cast<int>(count) > kMaxStepsInFlight || flights_[last % kStepSlots].active)
    return false;
  if (count == 1 && rows_ == 0) return true;
  return std::none_of(flights_.begin(), flights_.end(), [last](const InFlight& flight) {
    return flight.active && flight.first + kStepSlots <= last;
  });
}

Status Session::Impl::Begin(const std::shared_ptr<PreparedStep>& prepared,
                            std::span<const Tensor> feeds, const RunOptions& options,
                            uint32_t count, Listener listener, uint64_t* step_id) {
  MG_RETURN_IF_ERROR(CheckFeeds(*prepared, feeds));
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  const auto deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  std::unique_lock lock(mutex_);
  auto next_free = [&] {
    return closed_ || RoomLocked(NextLocked(options.step, count) + count - 1, count);
  };
  if (!next_free()) {
    const auto until = std::min(deadline, Clock::now() + std::chrono::hours(24));
    if (!slot_free_.wait_until(lock, until, next_free)) {
      return DeadlineExceeded("no step of the " + std::to_string(running_) +
                              " in flight ended within " + Seconds(timeout));
    }
  }
  if (closed_) return FailedPrecondition("Session is closed.");
  MG_RETURN_IF_ERROR(ReachableLocked(*prepared));
  const uint64_t first = NextLocked(options.step, count);
  if (first <= last_step_) {
    return InvalidArgument("step " + std::to_string(options.step) + " comes after step " +
                           std::to_string(last_step_) + "; numbers of steps grow");
  }
  *step_id = last_step_ = first + count - 1;
  if (options.step > 0) last_given_ = last_step_;
  InFlight& flight = flights_[last_step_ % kStepSlots];
  flight.first = first;
  flight.step = last_step_;
  flight.active = true;
  flight.prepared = prepared;
  flight.fetched.assign(static_cast<size_t>(prepared->distinct_fetches), Tensor());
  flight.part_done.assign(prepared->parts.size(), false);
  flight.feeds.clear();
  if (std::any_of(prepared->fetch_of_feed.begin(), prepared->fetch_of_feed.end(),
                  [](int feed) { return feed >= 0; }))
    flight.feeds.assign(feeds.begin(), feeds.end());
  flight.parts_missing = static_cast<int>(prepared->parts.size());
  flight.fetches_missing = prepared->distinct_fetches;
  flight.status = Status();
  flight.aborting = flight.awaits_cause = false;
  flight.deadline = deadline;
  flight.timeout = timeout;
  flight.listener = std::move(listener);
  running_ += static_cast<int>(count);
  if (count > 1) ++rows_;
  if (flight.listener.done && deadline != Clock::time_point::max()) WatchLocked();
  return Status();
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

bool Session::Impl::WaitUntil(const std::atomic<bool>& finished, Clock::time_point until) {
  auto over = [&finished] { return finished.load(std::memory_order_acquire); };
  if (worker_->transport() != nullptr) return worker_->transport()->DriveUntil(over, until);
  std::unique_lock lock(mutex_);
  if (until == Clock::time_point::max()) {
    slot_free_.wait(lock, over);
    return true;
  }
  return slot_free_.wait_until(lock, until, over);
}

Result<std::vector<Tensor>> Session::Impl::RunPrepared(
    const std::shared_ptr<PreparedStep>& prepared, std::span<const Tensor> feeds,
    const RunOptions& options, RunMetadata* metadata) {
  if (options.steps < 1 || (options.steps > 1 && options.trace)) {
    return InvalidArgument(
        "RunOptions: steps is " + std::to_string(options.steps) +
        (options.trace ? " with trace; a trace is of one step" : "; it must be 1 or more"));
  }
  const std::chrono::milliseconds timeout = options.timeout.value_or(options_.operation_timeout);
  const auto deadline = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
  RunOptions row_options = options;
  std::atomic<bool> finished = false;
  Result<std::vector<Tensor>> result = std::vector<Tensor>();
  uint64_t step = 0;
  // One row at a time: the steps of two would run side by side.
  for (int64_t left = options.steps; left > 0 && result.ok();) {
    const auto count = static_cast<uint32_t>(std::min<int64_t>(left, kMaxStepsInRow));
    finished = false;
    MG_RETURN_IF_ERROR(Begin(prepared, feeds, row_options, count,
                             {.finished = &finished, .result = &result}, &step));
    row_options.step = 0;  // the next rows follow
    left -= count;
    Dispatch(*prepared, feeds, step, count, options.trace, true);
    if (!WaitUntil(finished, deadline)) {
      Expire(step);
      // Ends by itself: when every task has stopped, or when the grace is over. Its heartbeats tell
      // of a task that does not even say that it stopped.
      (void)WaitUntil(finished, Clock::time_point::max());
    }
  }
  if (metadata != nullptr) {
    metadata->step_id = step;
    if (options.trace && result.ok()) TraceOf(step, *prepared, metadata);
  }
  return result;
}

}  // namespace monograph
