// WorkerPool: a few named threads that run closures in the order of their arrival. For handlers
// that may block.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace monograph::control
