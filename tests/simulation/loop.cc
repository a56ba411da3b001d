#include "tests/simulation/loop.h"

#include <algorithm>

#include "base/thread.h"

namespace monograph::simulation {
namespace {

// A guest looks at ready() so often if nothing else makes it look: as a real driver, whose sleeps
// are no longer (transport/drive/drive_loop.cc).
constexpr std::chrono::milliseconds kLook{64};

}  // namespace

Loop::Key Loop::PostAt(Clock::time_point time, Work work) {
  MutexLock lock(mutex_);
  if (over_) {
    lock.Unlock();  // what the work holds may call
    work = nullptr;
    lock.Lock();
    return {time, 0};
  }
  const Key key(time, ++last_);
  work_.emplace(key, std::move(work));
  // Who runs something looks at the work when it is done.
  if (!running_ && work_.begin()->first == key) {
    if (guests_ > 0 && !closed_) {
      guest_turn_.NotifyAll();
    } else {
      thread_turn_.NotifyOne();
    }
  }
  return key;
}

void Loop::Cancel(const Key& key) {
  Work work;
  MutexLock lock(mutex_);
  if (const auto found = work_.find(key); found != work_.end()) {
    work = std::move(found->second);
    work_.erase(found);
  }
  lock.Unlock();
}

bool Loop::RunOne() {
  if (work_.empty() || work_.begin()->first.first > Clock::now()) return false;
  Work work = std::move(work_.begin()->second);
  work_.erase(work_.begin());
  running_ = true;
  runner_ = std::this_thread::get_id();
  mutex_.Unlock();
  work();
  work = nullptr;
  mutex_.Lock();
  running_ = false;
  ++changes_;
  if (guests_ > 0) guest_turn_.NotifyAll();
  return true;
}

void Loop::Run() {
  MutexLock lock(mutex_);
  while (true) {
    const bool turn = !running_ && (guests_ == 0 || closed_);
    if (turn && RunOne()) continue;
    if (turn && finishing_) break;
    if (turn && !work_.empty()) {
      thread_turn_.WaitUntil(mutex_, work_.begin()->first.first);
    } else {
      thread_turn_.Wait(mutex_);
    }
  }
  over_ = true;
  const std::map<Key, Work> left = std::move(work_);
  work_.clear();
  lock.Unlock();
}

bool Loop::DriveUntil(const std::function<bool()>& ready, Clock::time_point deadline) {
  if (ready()) return true;
  MutexLock lock(mutex_);
  ++guests_;
  while (!closed_) {
    const uint64_t seen = changes_;
    lock.Unlock();
    const bool is_ready = ready();
    lock.Lock();
    if (is_ready || Clock::now() >= deadline) break;
    if (!running_ && RunOne()) continue;
    if (closed_ || changes_ != seen) continue;
    Clock::time_point until = std::min(deadline, Clock::now() + kLook);
    if (!running_ && !work_.empty()) until = std::min(until, work_.begin()->first.first);
    guest_turn_.WaitUntil(mutex_, until);
  }
  if (--guests_ == 0) {
    thread_turn_.NotifyOne();
  } else {
    guest_turn_.NotifyAll();
  }
  lock.Unlock();
  return ready();
}

void Loop::Wake() {
  MutexLock lock(mutex_);
  ++changes_;
  guest_turn_.NotifyAll();
}

void Loop::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  guest_turn_.NotifyAll();
  thread_turn_.NotifyOne();
}

void Loop::Finish() {
  MutexLock lock(mutex_);
  finishing_ = closed_ = true;
  guest_turn_.NotifyAll();
  thread_turn_.NotifyOne();
}

bool Loop::OnThread() const {
  MutexLock lock(mutex_);
  return running_ && runner_ == std::this_thread::get_id();
}

LoopThread::LoopThread(const std::string& name)
    : thread_(StartThread(name, [loop = loop_] { loop->Run(); })) {}

void LoopThread::Join() {
  loop_->Finish();
  if (thread_.joinable()) thread_.join();
}

}  // namespace monograph::simulation
