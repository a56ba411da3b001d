// How a step in flight ends: a fetch arrives, a task reports its part, something fails, the
// deadline passes, a task is lost, or the session closes. Each of these handlers has two halves.
// Under mutex_ it changes the StepInFlight; FailLocked says which tasks must stop, FinishLocked
// whether the step is over. Without the lock it then tells the tasks to stop (Abort) and runs the
// caller's callback (Completion::Run), which may call the session again.
#include <algorithm>

#include "base/duration.h"
#include "base/thread.h"
#include "client/session/impl.h"

namespace monograph {

bool Session::Impl::OnFetch(uint64_t step, int32_t edge, Tensor& tensor) {
  Completion completion;
  {
    MutexLock lock(mutex_);
    StepInFlight* const found = steps_.Find(step);
    if (found == nullptr) return true;  // the step is over: nobody wants it
    StepInFlight& flight = *found;
    const std::vector<int32_t>& fetches = flight.prepared->fetch_of_edge;
    if (edge < 0 || static_cast<size_t>(edge) >= fetches.size()) return false;
    const int32_t fetch = fetches[static_cast<size_t>(edge)];
    if (fetch < 0) return false;
    if (step != flight.steps.last) return true;  // of a row only the last step's are returned
    Tensor& fetched = flight.fetched[static_cast<size_t>(fetch)];
    if (!fetched.valid()) {
      fetched = std::move(tensor);
      --flight.fetches_missing;
      if (flight.listener.partial != nullptr) OnPartialFetchLocked(flight);
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
    MutexLock lock(mutex_);
    StepInFlight* const flight = steps_.FindLast(step);
    if (flight == nullptr) return;
    if (!flight->EndParts(peer)) return;  // no part in the step, or its parts have ended already
    for (LatePart& part : flight->late) {
      if (part.peer != peer) continue;
      part.answered = true;
      part.what = status.message();
    }
    if (!status.ok()) stop = FailLocked(*flight, JudgedLocked(peer, status));
    cause = flight->status;
    completion = FinishLocked(*flight);
  }
  Abort(stop, step, cause);
  completion.Run();
}

void Session::Impl::OnStepFailed(uint64_t step, const Status& status) {
  Completion completion;
  std::vector<int> stop;
  uint64_t last = 0;
  {
    MutexLock lock(mutex_);
    StepInFlight* const flight = steps_.Find(step);
    if (flight == nullptr) return;
    last = flight->steps.last;
    stop = FailLocked(*flight, status);
    completion = FinishLocked(*flight);
  }
  Abort(stop, last, status);
  completion.Run();
}

void Session::Impl::FailSteps(const Status& why, const std::function<bool(StepInFlight&)>& which) {
  std::vector<Completion> completions;
  std::vector<std::pair<uint64_t, std::vector<int>>> stops;
  {
    MutexLock lock(mutex_);
    for (StepInFlight* const flight : steps_.All()) {
      if (!which(*flight)) continue;
      stops.emplace_back(flight->steps.last, FailLocked(*flight, why, kLostGrace));
      completions.push_back(FinishLocked(*flight));
    }
  }
  for (const auto& [step, peers] : stops) Abort(peers, step, why);
  for (Completion& completion : completions) completion.Run();
}

Status Session::Impl::TimeoutOf(const StepInFlight& flight) {
  std::string late = DescribeLateParts(flight.late);
  if (late.empty()) {
    late = "none, but " + std::to_string(flight.fetches_missing) +
           (flight.fetches_missing == 1 ? " fetched tensor is" : " fetched tensors are") +
           " not here yet";
  }
  return DeadlineExceeded("step " + std::to_string(StepNumberOf(flight.steps.last)) +
                          " did not end within " + Seconds(flight.timeout) +
                          "; tasks still running: " + late);
}

void Session::Impl::ExplainLocked(StepInFlight& flight) const {
  for (LatePart& part : flight.late) {
    if (part.answered) continue;
    const bool lost = part.peer != kSelf && !lost_[static_cast<size_t>(part.peer)].ok();
    part.what = lost ? "lost"
                     : "has not stopped: it is inside " +
                           (part.what.empty() ? std::string("a kernel") : part.what);
  }
  if (!flight.late.empty()) flight.status = TimeoutOf(flight);
}

void Session::Impl::Expire(uint64_t step) {
  Completion completion;
  std::vector<int> stop;
  Status status;
  const std::string inside = worker_->InsideOf(id_, step);  // of other tasks it is not known
  {
    MutexLock lock(mutex_);
    StepInFlight* const flight = steps_.Find(step);
    if (flight == nullptr) return;
    if (flight->status.ok() || flight->status.derived()) {
      for (size_t i = 0; i < flight->part_done.size(); ++i) {
        const int peer = flight->prepared->parts[i].peer;
        if (flight->part_done[i]) continue;
        flight->late.push_back(
            {.peer = peer, .task = TaskName(peer), .what = peer == kSelf ? inside : ""});
      }
    }
    status = TimeoutOf(*flight);
    stop = FailLocked(*flight, status, kTimeoutGrace);
    completion = FinishLocked(*flight);
  }
  Abort(stop, step, status);
  completion.Run();
}

std::vector<int> Session::Impl::FailLocked(StepInFlight& flight, const Status& status,
                                           std::chrono::milliseconds grace) {
  flight.status.Update(status);
  std::vector<int> stop;
  const auto last = Clock::now() + grace;
  if (!flight.aborting || last < flight.deadline) {
    flight.deadline = last;
    WatchLocked(last);
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
  for (int peer : peers) worker_->SendAbortStep(id_, peer, step, status.AsDerived());
}

bool Session::Impl::AwaitCauseLocked(StepInFlight& flight) {
  // A lost task counts even if its own part had ended: others may still have been sending to it.
  // Where a transfer broke off, or another client has ended, so does one that has no part.
  for (size_t task = 0; task < lost_.size() && flight.status.derived(); ++task) {
    if (!lost_[task].ok() &&
        (flight.status.code() == Code::kUnavailable || flight.HasPart(static_cast<int>(task))))
      flight.status.Update(lost_[task]);
  }
  const bool broke_off = flight.status.derived() && flight.status.code() == Code::kUnavailable;
  if (!broke_off || cluster_ == nullptr) return false;
  if (!std::exchange(flight.awaits_cause, true)) {
    flight.aborting = true;
    flight.cause_asked = Clock::now();
    flight.cause_until = flight.cause_asked + kCauseGrace;
    flight.deadline = flight.cause_asked + kCauseLook;
    cluster_->Ask();
    WatchLocked(flight.deadline);
  }
  return true;
}

bool Session::Impl::CauseMayComeLocked(const StepInFlight& flight, Clock::time_point now) const {
  if (!flight.awaits_cause || now >= flight.cause_until) return false;
  for (int task = 0; task < static_cast<int>(lost_.size()); ++task) {
    if (lost_[static_cast<size_t>(task)].ok() &&
        !cluster_->HasAnsweredSince(task, flight.cause_asked))
      return true;
  }
  return false;
}

Session::Impl::Completion Session::Impl::FinishLocked(StepInFlight& flight, bool force) {
  Completion completion;
  const bool over =
      flight.parts_missing == 0 && (!flight.status.ok() || flight.fetches_missing == 0);
  if (!over && !force) return completion;
  if (!force && AwaitCauseLocked(flight)) return completion;
  if (!flight.status.ok()) {
    ExplainLocked(flight);
    completion.result = flight.status;
    if (LogEnabled(LogLevel::kDebug)) {
      completion.failure = "step " + std::to_string(StepNumberOf(flight.steps.last)) +
                           " failed: " + flight.status.ToString();
    }
  } else {
    std::vector<Tensor> values;
    const PreparedStep& prepared = *flight.prepared;
    values.reserve(prepared.values.size());
    for (const PreparedStep::Value& value : prepared.values) {
      values.push_back(value.feed >= 0 ? flight.feeds[static_cast<size_t>(value.feed)]
                                       : flight.fetched[static_cast<size_t>(value.fetch)]);
    }
    completion.result = std::move(values);
  }
  StepInFlight::Listener listener = std::exchange(flight.listener, {});
  completion.done = std::move(listener.done);
  steps_.End(flight);
  if (listener.finished != nullptr) {
    *listener.result = std::move(completion.result);
    listener.finished->store(true, std::memory_order_release);
    if (transport_ != nullptr) transport_->Wake();
  }
  slot_free_.NotifyAll();
  return completion;
}

void Session::Impl::FinishAll() {
  std::vector<Completion> forced;
  {
    MutexLock lock(mutex_);
    for (StepInFlight* const flight : steps_.All()) forced.push_back(FinishLocked(*flight, true));
  }
  for (Completion& completion : forced) completion.Run();
}

void Session::Impl::WatchLocked(Clock::time_point deadline) {
  if (closed_) return;
  if (!watcher_.joinable()) watcher_ = StartThread("mg-session", [this] { Watch(); });
  if (deadline < watch_next_) watch_.NotifyOne();
}

void Session::Impl::Watch() {
  MutexLock lock(mutex_);
  while (!closed_) {
    auto next = Clock::now() + std::chrono::hours(1);
    std::vector<uint64_t> expired;
    std::vector<Completion> forced;
    const auto now = Clock::now();
    for (StepInFlight* const flight : steps_.All()) {
      // Where the caller of a synchronous step waits, it sees the deadline too: both may come.
      if (flight->deadline == Clock::time_point::max()) continue;
      if (flight->deadline > now) {
        next = std::min(next, flight->deadline);
      } else if (!flight->aborting) {
        expired.push_back(flight->steps.last);
      } else if (CauseMayComeLocked(*flight, now)) {
        flight->deadline = now + kCauseLook;
        next = std::min(next, flight->deadline);
      } else {
        forced.push_back(FinishLocked(*flight, true));
      }
    }
    if (expired.empty() && forced.empty()) {
      watch_next_ = next;
      watch_.WaitUntil(mutex_, next);
      continue;
    }
    lock.Unlock();
    for (uint64_t step : expired) Expire(step);
    for (Completion& completion : forced) completion.Run();
    lock.Lock();
  }
}

}  // namespace monograph
