#include "transport/control/worker_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/thread.h"

namespace monograph::control {

WorkerPool::WorkerPool(std::string name, int threads, int most)
    : name_(std::move(name)), most_(static_cast<size_t>(std::max(threads, most))) {
  MutexLock lock(mutex_);
  for (int i = 0; i < threads; ++i)
    threads_.push_back(StartThread(name_, [this] { Loop(/*stays=*/true); }));
}

void WorkerPool::Run(std::function<void()> work) {
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(work));
    ended.swap(ended_);
    if (queue_.size() > idle_ && threads_.size() < most_)
      threads_.push_back(StartThread(name_, [this] { Loop(/*stays=*/false); }));
  }
  wake_.NotifyOne();
  for (std::thread& thread : ended) thread.join();
}

void WorkerPool::Join(bool finish_queue) {
  std::deque<std::function<void()>> dropped;
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (!finish_queue) dropped.swap(queue_);
    threads.swap(threads_);
    std::move(ended_.begin(), ended_.end(), std::back_inserter(threads));
    ended_.clear();
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::Loop(bool stays) {
  MutexLock lock(mutex_);
  for (;;) {
    if (!stays && !stopping_ && queue_.empty()) {
      const auto self = std::find_if(threads_.begin(), threads_.end(), [](const std::thread& each) {
        return each.get_id() == std::this_thread::get_id();
      });
      ended_.push_back(std::move(*self));
      threads_.erase(self);
      return;
    }
    ++idle_;
    wake_.Wait(mutex_, [this]() MG_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
    --idle_;
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
