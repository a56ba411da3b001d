// ThreadPools: the compute threads of a task, as two TBB arenas that share one set of workers:
// inter-op (nodes run beside each other) and intra-op (one kernel's loop on several threads).
//
// Threads are named "mg-worker-N". The process has as many TBB workers as the largest pool asks
// for, at least one per core, so that a thread that only moves messages takes none away. Sessions
// do not wait for each other: where none of these threads comes to a session's nodes because all
// are inside long kernels of others, an extra thread does (executor/task_queue.h). Thread-safe. May
// be destroyed on any thread once no step runs; a worker that is just leaving keeps what it needs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace monograph {

class StepOutcome;  // executor/step/outcome.h

class ThreadPools {
 public:
  // 0: one thread per core.
  ThreadPools(int inter_op, int intra_op);
  ~ThreadPools();
  ThreadPools(const ThreadPools&) = delete;
  ThreadPools& operator=(const ThreadPools&) = delete;

  int inter_op() const { return inter_op_; }
  int intra_op() const { return intra_op_; }

  // Runs run(context, value) on an inter-op thread, soon. Several that are queued start in order,
  // but that those of a session may overtake those of another one. 0: of no session in particular.
  using Task = void (*)(void* context, int32_t value);
  void Enqueue(Task run, void* context, int32_t value, uint64_t session = 0);
  // Whether a task enqueued now would find an inter-op thread free. Relaxed, as all uses of busy_:
  // a hint, which is old by the time that it is used.
  bool hungry() const { return busy_->load(std::memory_order_relaxed) < inter_op_; }
  int idle() const { return inter_op_ - busy_->load(std::memory_order_relaxed); }
  // A thread that computes without being one of ours counts as one while it does.
  void EnterCaller() { busy_->fetch_add(1, std::memory_order_relaxed); }
  void LeaveCaller() { busy_->fetch_sub(1, std::memory_order_relaxed); }

  // As KernelContext::ParallelFor. With `outcome`, pieces are left out once it is an abort.
  void ParallelFor(int64_t total, int64_t cost_ns,
                   const std::function<void(int64_t begin, int64_t end)>& fn,
                   const StepOutcome* outcome = nullptr);
  // The same on the calling thread alone.
  static void SerialFor(int64_t total, int64_t cost_ns,
                        const std::function<void(int64_t begin, int64_t end)>& fn,
                        const StepOutcome* outcome);

 private:
  struct Impl;
  const int inter_op_;
  const int intra_op_;
  std::shared_ptr<Impl> impl_;
  std::atomic<int>* busy_;  // of impl_: tasks that are queued or run
};

}  // namespace monograph
