// ThreadPools on simulated threads, linked in place of executor/thread_pools.cc: TBB's threads wait
// in ways that the scheduler does not see. Nodes go through the product's own TaskQueue; a kernel's
// loop runs on the calling thread.
#include "executor/thread_pools.h"

#include <string>

#include "base/mutex.h"
#include "base/thread.h"
#include "executor/task_queue.h"

namespace monograph {

struct ThreadPools::Impl {
  std::atomic<int> busy{0};
  const std::shared_ptr<TaskQueue> queue = TaskQueue::Make();
  Mutex mutex;
  CondVar changed;
  int tasks MG_GUARDED_BY(mutex) = 0;  // that no thread has begun
  int threads MG_GUARDED_BY(mutex) = 0;
  int idle MG_GUARDED_BY(mutex) = 0;
  bool closed MG_GUARDED_BY(mutex) = false;

  ~Impl() { queue->Close(); }

  // Body of a thread.
  void Work() {
    MutexLock lock(mutex);
    while (true) {
      ++idle;
      changed.Wait(mutex, [this]() MG_REQUIRES(mutex) { return closed || tasks > 0; });
      --idle;
      if (tasks == 0) return;
      --tasks;
      lock.Unlock();
      queue->RunNext();
      busy.fetch_sub(1, std::memory_order_relaxed);
      lock.Lock();
    }
  }
};

ThreadPools::ThreadPools(int inter_op, int intra_op)
    : inter_op_(inter_op > 0 ? inter_op : 2),
      intra_op_(intra_op > 0 ? intra_op : 2),
      impl_(std::make_shared<Impl>()),
      busy_(&impl_->busy) {}

ThreadPools::~ThreadPools() {
  MutexLock lock(impl_->mutex);
  impl_->closed = true;
  impl_->changed.NotifyAll();
}

void ThreadPools::Enqueue(Task run, void* context, int32_t value, uint64_t session) {
  busy_->fetch_add(1, std::memory_order_relaxed);
  impl_->queue->Push({run, context, value, session});
  MutexLock lock(impl_->mutex);
  ++impl_->tasks;
  if (impl_->idle < impl_->tasks && impl_->threads < inter_op_) {
    // Not joined: the pool may end on it.
    StartThread("mg-worker-" + std::to_string(impl_->threads++), [impl = impl_] {
      impl->Work();
    }).detach();
  }
  impl_->changed.NotifyOne();
}

void ThreadPools::SerialFor(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& fn,
                            const StepOutcome*) {
  if (total > 0) fn(0, total);
}

void ThreadPools::ParallelFor(int64_t total, int64_t cost_ns,
                              const std::function<void(int64_t, int64_t)>& fn,
                              const StepOutcome* outcome) {
  SerialFor(total, cost_ns, fn, outcome);
}

}  // namespace monograph
