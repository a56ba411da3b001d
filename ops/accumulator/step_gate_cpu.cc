// Each function changes the gate under its lock, moves out the waiters that this completes, and
// calls them after it: a callback may enter the gate again. Who holds the gate (makes the updates)
// and which replicas are members is told by their sessions; when too few are left, all waiters
// fail.
#include "ops/accumulator/step_gate_cpu.h"

#include <algorithm>
#include <utility>

namespace monograph::ops::accumulator {

void StepGateResource::Set(int64_t step, bool restart) {
  std::list<Waiter> waiters;
  Status status;
  {
    MutexLock lock(mutex_);
    if (restart) {
      closed_ = gone_ = lack_ = Status();
      holder_ = nullptr;
      members_.clear();
      left_.clear();
      step_ = step;
      waiters.swap(waiters_);
      status = Aborted("'" + name_ + "' was started anew at step " + std::to_string(step) +
                       "; begin again from there (run local_init)");
    } else {
      step_ = std::max(step_, step);
      step = step_;
      for (auto it = waiters_.begin(); it != waiters_.end();) {
        const auto next = std::next(it);
        if (it->local_step < step_) waiters.splice(waiters.end(), waiters_, it);
        it = next;
      }
    }
  }
  for (Waiter& waiter : waiters) waiter.done(status, step);
}

void StepGateResource::Wait(KernelContext& c, int64_t local_step, Passed done) {
  uint64_t id = 0;
  Status status;
  int64_t step = 0;
  std::list<Waiter> own;
  own.push_back({id, local_step, std::move(done)});
  {
    MutexLock lock(mutex_);
    step = step_;
    status = closed_;
    // The end of the data takes nothing back: who waits for a step that is made already goes on.
    if (status.code() == Code::kOutOfRange && local_step < step) status = Status();
    if (status.ok() && step >= 0 && local_step > step) {
      status = Aborted("local step " + std::to_string(local_step) + " is ahead of step " +
                       std::to_string(step) + " of '" + name_ +
                       "', which was started anew; begin again from there (run local_init)");
    }
    if (status.ok() && local_step >= step) status = gone_.ok() ? lack_ : gone_;
    if (status.ok() && local_step >= step) {
      id = ++last_id_;
      own.front().id = id;
      waiters_.splice(waiters_.end(), own);
    }
  }
  if (!own.empty()) return own.front().done(status, step);
  // From here on somebody else may complete it; cancelling is then without effect.
  if (!c.OnCancel([self = shared_from_this(), id] { self->Cancel(id); })) Cancel(id);
}

void StepGateResource::Close(const Status& status) {
  std::list<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    closed_ = status;
    waiters.swap(waiters_);
  }
  for (Waiter& waiter : waiters) waiter.done(status, 0);
}

void StepGateResource::Hold(const void* holder) {
  MutexLock lock(mutex_);
  holder_ = holder;
  gone_ = Status();
}

void StepGateResource::LetGo(const void* holder, const std::string& name) {
  std::list<Waiter> waiters;
  Status status;
  {
    MutexLock lock(mutex_);
    if (holder_ != holder) return;
    holder_ = nullptr;
    status = gone_ =
        Unavailable("who makes the updates of '" + name_ + "', " + name + ", has ended its session")
            .AsDerived();
    waiters.swap(waiters_);
  }
  for (Waiter& waiter : waiters) waiter.done(status, 0);
}

void StepGateResource::Join(const void* member, const Replica& replica) {
  MutexLock lock(mutex_);
  members_[replica.rank] = member;
  if (left_.erase(replica.rank) != 0) lack_ = LackLocked(replica);
}

void StepGateResource::Leave(const void* member, const Replica& replica) {
  std::list<Waiter> waiters;
  Status status;
  {
    MutexLock lock(mutex_);
    const auto found = members_.find(replica.rank);
    if (found == members_.end() || found->second != member) return;
    members_.erase(found);
    left_[replica.rank] = replica.name;
    status = lack_ = LackLocked(replica);
    if (!status.ok()) waiters.swap(waiters_);
  }
  for (Waiter& waiter : waiters) waiter.done(status, 0);
}

Status StepGateResource::LackLocked(const Replica& of) const {
  if (of.replicas - static_cast<int64_t>(left_.size()) >= of.required) return Status();
  std::string gone;
  for (const auto& [rank, name] : left_) {
    gone += (gone.empty() ? "replica " : ", replica ") + std::to_string(rank) +
            (name.empty() ? "" : " (" + name + ")");
  }
  return Unavailable("update " + std::to_string(step_ + 1) + " of '" + name_ + "' needs " +
                     std::to_string(of.required) + " of " + std::to_string(of.replicas) +
                     " replicas, and the session of " + gone + " has ended")
      .AsDerived();
}

int64_t StepGateResource::step() const {
  MutexLock lock(mutex_);
  return closed_.ok() ? step_ : -1;
}

std::string StepGateResource::DebugString() const {
  MutexLock lock(mutex_);
  return "step gate " + name_ + " at step " + std::to_string(step_) + ", " +
         std::to_string(waiters_.size()) + " waiting" + (closed_.ok() ? "" : ", closed");
}

void StepGateResource::OnRemoved() { Close(Aborted("'" + name_ + "' was removed from its task")); }

void StepGateResource::Cancel(uint64_t id) {
  Waiter waiter;
  int64_t step = 0;
  {
    MutexLock lock(mutex_);
    step = step_;
    const auto found = std::find_if(waiters_.begin(), waiters_.end(),
                                    [id](const Waiter& w) { return w.id == id; });
    if (found == waiters_.end()) return;
    waiter = std::move(*found);
    waiters_.erase(found);
  }
  waiter.done(Cancelled("'" + name_ + "' " +
                        (step < 0 ? "has not started" : "is still at step " + std::to_string(step)))
                  .AsDerived(),
              0);
}

}  // namespace monograph::ops::accumulator
