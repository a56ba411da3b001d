// WorkerPool: a few named threads that run closures in the order of their arrival. For handlers
// that may block. A pool that may grow starts a thread more where all are busy, which ends when
// nothing is left to run.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace monograph::control {

class WorkerPool {
 public:
  // `threads` stay; `most`, if larger, is how many there may be at a time.
  WorkerPool(std::string name, int threads, int most = 0);
  ~WorkerPool() { Join(); }

  // From any thread. After Join the closure is destroyed without running.
  void Run(std::function<void()> work);
  // Finishes what is running; with `finish_queue` also what waits, else drops it. REQUIRES: not
  // called from a thread of the pool.
  void Join(bool finish_queue = false);

 private:
  void Loop(bool stays);

  const std::string name_;
  const size_t most_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> queue_ MG_GUARDED_BY(mutex_);
  bool stopping_ MG_GUARDED_BY(mutex_) = false;
  size_t idle_ MG_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ MG_GUARDED_BY(mutex_);
  // They have left Loop, or are about to, and are joined when the next one starts.
  std::vector<std::thread> ended_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph::control
