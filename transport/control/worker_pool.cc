#include "transport/control/worker_pool.h"

#include <utility>

#include "base/thread.h"

namespace monograph::control {

WorkerPool::WorkerPool(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) threads_.push_back(StartThread(name, [this] { Loop(); }));
}

void WorkerPool::Run(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(work));
  }
  wake_.NotifyOne();
}

void WorkerPool::Join(bool finish_queue) {
  std::deque<std::function<void()>> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (!finish_queue) dropped.swap(queue_);
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::Loop() {
  MutexLock lock(mutex_);
  for (;;) {
    wake_.Wait(mutex_, [this]() MG_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.Unlock();
    work();
    work = nullptr;
    lock.Lock();
  }
}

}  // namespace monograph::control
