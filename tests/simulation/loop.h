// Loop: work for one thread at a time, each piece when its time has come; of equal times the one
// that was given first. What an io thread, or the thread that drives a transport, is in the
// simulation.
//
// Threads: any. Work runs on the thread inside Run, or on a guest inside DriveUntil, never inside
// the call that gave it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace monograph::simulation {

using Clock = std::chrono::steady_clock;

class Loop {
 public:
  using Work = std::function<void()>;
  // A piece of work that has not run: never two with the same.
  using Key = std::pair<Clock::time_point, uint64_t>;

  // False if the loop is over; `work` is then destroyed.
  bool Post(Work work) { return PostAt(Clock::now(), std::move(work)).second != 0; }
  // Its number is 0 if the loop is over.
  Key PostAt(Clock::time_point time, Work work) MG_EXCLUDES(mutex_);
  // Work that has begun or ended is left alone.
  void Cancel(const Key& key) MG_EXCLUDES(mutex_);

  // Runs what is due until Finish, then what is due still; the loop is over when it returns.
  void Run() MG_EXCLUDES(mutex_);
  // As Transport::DriveUntil (transport/transport.h): the thread inside Run stands back meanwhile.
  bool DriveUntil(const std::function<bool()>& ready, Clock::time_point deadline)
      MG_EXCLUDES(mutex_);
  // Lets those inside DriveUntil look at ready() again.
  void Wake() MG_EXCLUDES(mutex_);
  // From now on DriveUntil returns at once.
  void Close() MG_EXCLUDES(mutex_);
  void Finish() MG_EXCLUDES(mutex_);
  // The calling thread runs the loop's work.
  bool OnThread() const MG_EXCLUDES(mutex_);

 private:
  // Runs the first piece if it is due; gives the lock back meanwhile.
  bool RunOne() MG_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar thread_turn_, guest_turn_;
  std::map<Key, Work> work_ MG_GUARDED_BY(mutex_);
  uint64_t last_ MG_GUARDED_BY(mutex_) = 0;
  bool running_ MG_GUARDED_BY(mutex_) = false;  // some work runs, on runner_
  std::thread::id runner_ MG_GUARDED_BY(mutex_);
  int guests_ MG_GUARDED_BY(mutex_) = 0;  // inside DriveUntil
  // Of what a guest has to look at: a Wake, the end of a piece of work.
  uint64_t changes_ MG_GUARDED_BY(mutex_) = 0;
  bool closed_ MG_GUARDED_BY(mutex_) = false;
  bool finishing_ MG_GUARDED_BY(mutex_) = false;
  bool over_ MG_GUARDED_BY(mutex_) = false;
};

// A loop with a thread of its own, which ends with it.
class LoopThread {
 public:
  explicit LoopThread(const std::string& name);
  ~LoopThread() { Join(); }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  const std::shared_ptr<Loop>& loop() const { return loop_; }
  // Finishes the loop. REQUIRES: not called on its thread.
  void Join();

 private:
  const std::shared_ptr<Loop> loop_ = std::make_shared<Loop>();
  std::thread thread_;
};

}  // namespace monograph::simulation
