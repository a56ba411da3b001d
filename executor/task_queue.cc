// The queue is a ring under one mutex. Whenever a task comes, begins or ends, CallExtraLocked looks
// whether some session may have to wait for another one's kernels: with one session a comparison or
// two. Only then is an extra thread called.
// It waits for kPatience, looks for tasks that are still there, and takes those that nothing of
// their own session is ahead of. While it runs one, another extra thread is free to look, so that a
// long kernel on an extra thread holds nobody up, either.
#include "executor/task_queue.h"

#include <algorithm>
#include <string>
#include <thread>

#include "base/thread.h"

namespace monograph {

void TaskQueue::Counts::Add(uint64_t session) {
  if (session == 0) return;
  for (auto& [other, count] : counts_) {
    if (other == session) {
      ++count;
      return;
    }
  }
  counts_.emplace_back(session, 1);
}

void TaskQueue::Counts::Remove(uint64_t session) {
  for (auto& entry : counts_) {
    if (entry.first != session) continue;
    if (--entry.second == 0) {
      entry = counts_.back();
      counts_.pop_back();
    }
    return;
  }
}

bool TaskQueue::Counts::Has(uint64_t session) const {
  return std::any_of(counts_.begin(), counts_.end(),
                     [session](const auto& entry) { return entry.first == session; });
}

void TaskQueue::Push(Task task) {
  MutexLock lock(mutex_);
  if (end_ - first_ == ring_.size()) GrowLocked();
  ring_[end_++ & (ring_.size() - 1)] = task;
  waiting_.Add(task.session);
  CallExtraLocked();
}

void TaskQueue::RunNext() {
  MutexLock lock(mutex_);
  while (first_ != end_) {
    const Task task = ring_[first_++ & (ring_.size() - 1)];
    if (task.run == nullptr) continue;
    waiting_.Remove(task.session);
    RunLocked(task);
    return;
  }
}

void TaskQueue::GrowLocked() {
  std::vector<Task> larger(2 * ring_.size());
  for (uint64_t i = first_; i != end_; ++i)
    larger[i & (larger.size() - 1)] = ring_[i & (ring_.size() - 1)];
  ring_.swap(larger);
}

void TaskQueue::RunLocked(const Task& task) {
  running_.Add(task.session);
  CallExtraLocked();
  mutex_.Unlock();
  task.run(task.context, task.value);
  mutex_.Lock();
  running_.Remove(task.session);
  CallExtraLocked();
}

bool TaskQueue::TakeWaitingLocked(Task* task) {
  for (uint64_t i = first_; i != end_; ++i) {
    Task& waiting = ring_[i & (ring_.size() - 1)];
    const bool waits = waiting.run != nullptr && waiting.session != 0 && !running_.empty();
    if (!waits || running_.Has(waiting.session)) continue;
    *task = waiting;
    waiting.run = nullptr;
    waiting_.Remove(task->session);
    return true;
  }
  return false;
}

// ---- extra threads

void TaskQueue::CallExtraLocked() {
  if (call_ || waiting_.empty() || (running_.empty() && waiting_.sessions() == 1)) return;
  if (std::all_of(waiting_.begin(), waiting_.end(), [this](const auto& entry) MG_REQUIRES(mutex_) {
        return running_.Has(entry.first);
      }))
    return;
  if (free_ == 0 && extra_ < kMostExtra) StartExtraLocked();
  if (free_ == 0) return;  // one that ends its task looks by itself
  call_ = true;
  called_.NotifyOne();
}

void TaskQueue::StartExtraLocked() {
  ++free_;
  // Not joined: it may be the one that ends the last step and with it the queue's owner.
  StartThread("mg-extra-" + std::to_string(extra_++), [self = shared_from_this()] {
    self->Extra();
  }).detach();
}

void TaskQueue::Extra() {
  using Clock = std::chrono::steady_clock;
  MutexLock lock(mutex_);
  auto eager_until = Clock::time_point::min();
  while (!closed_) {
    const bool eager = Clock::now() < eager_until;
    const auto until = eager ? eager_until : Clock::now() + kIdle;
    eager_ += eager ? 1 : 0;
    const bool called =
        called_.WaitUntil(mutex_, until, [this]() MG_REQUIRES(mutex_) { return call_ || closed_; });
    eager_ -= eager ? 1 : 0;
    if (!called && !eager) break;
    if (!called || closed_) continue;
    // Meanwhile `call_` keeps others from calling.
    if (!eager && eager_ == 0)
      called_.WaitFor(mutex_, kPatience, [this]() MG_REQUIRES(mutex_) { return closed_; });
    call_ = false;
    for (Task task; !closed_ && TakeWaitingLocked(&task);) {
      if (--free_ == 0 && extra_ < kMostExtra) StartExtraLocked();
      RunLocked(task);
      ++free_;
      eager_until = Clock::now() + kEager;
    }
  }
  --free_;
  --extra_;
}

void TaskQueue::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  called_.NotifyAll();
}

}  // namespace monograph
