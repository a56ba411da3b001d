// WorkerPool: a few named threads that run closures in the order of their arrival. For handlers
// that may block.
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
  WorkerPool(const std::string& name, int threads);
  ~WorkerPool() { Join(); }

  // From any thread. After Join the closure is destroyed without running.
  void Run(std::function<void()> work);
  // Finishes what is running; with `finish_queue` also what waits, else drops it. REQUIRES: not
  // called from a thread of the pool.
  void Join(bool finish_queue = false);

 private:
  void Loop();

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> queue_ MG_GUARDED_BY(mutex_);
  bool stopping_ MG_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace monograph::control
