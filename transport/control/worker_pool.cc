#include "transport/control/worker_pool.h"

#include <utility>

#include "base/thread.h"

namespace monograph::control {

WorkerPool::WorkerPool(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) threads_.push_back(StartThread(name, [this] { Loop(); }));
}

void WorkerPool::Run(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void WorkerPool::Join(bool finish_queue) {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!finish_queue) dropped.swap(queue_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

}  // namespace monograph::control
