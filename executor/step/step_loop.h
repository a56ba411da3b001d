// StepLoop: one thread's stretch of work on one step, with the list of nodes that this thread has
// made ready and not begun. Private to the step folder.
#pragma once

#include <atomic>
#include <cstdint>

#include "executor/step/ready_loop.h"

namespace monograph {

class StepLoop : public ReadyLoop<StepLoop, int32_t, -1> {
 public:
  // As ReadyLoop's.
  StepLoop(Step& step, bool compute);
  // Runs `head` and what its links lead to, on an inter-op thread, and gives up a hold of the step.
  static void RunTask(void* step, int32_t head);

  using ReadyLoop::Push;
  // Makes ready what waits for nothing but the start of the step.
  void PushRoots();
  // One of the things that `node` waits for is there.
  void Arrive(int32_t node) {
    if (CountDown(node)) Push(node);
  }
  // Hands on the outputs of an asynchronous kernel that has finished.
  void CompleteAsync(int32_t id);

  // Runs until no node of the list is left or the step is aborted.
  void Run();

 private:
  friend class ReadyLoop<StepLoop, int32_t, -1>;

  static int32_t NodeOf(int32_t node) { return node; }
  int32_t& next(int32_t node) { return next_[node]; }
  // True if `node` waits for nothing else.
  bool CountDown(int32_t node) {
    return std::atomic_ref<uint32_t>(pending_[node]).fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  int32_t Execute(int32_t id);
  int32_t ExecuteOther(int32_t id, const PlanNode& node);
  int32_t ExecuteSpecial(int32_t id, const PlanNode& node);
  int32_t ExecuteSend(int32_t id, const PlanNode& node);
  void StartAsync(int32_t id, const PlanNode& node);
  int32_t Propagate(int32_t id, const PlanNode& node, Tensor* outputs);
  int32_t PropagateInline(int32_t id, const PlanNode& node, Tensor* outputs);
  int32_t KernelFailed(int32_t id, const PlanNode& node, const Status& status);
  void Enqueue(int32_t list);
  void Flush();

  const bool timed_;      // kernels are measured
  int32_t finished_ = 0;  // nodes, since the last Flush
  // Copies of pointers in the plan and the state. Read through those, they would be loaded again
  // after every kernel, since the compiler must assume that a kernel changes them.
  Tensor* const slots_;
  int32_t* const next_;
  uint32_t* const pending_;
  const PlanNode* const nodes_;
  const DataEdge* const edges_;
  const Successor* const successors_;
};

}  // namespace monograph
