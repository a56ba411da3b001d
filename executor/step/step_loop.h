// StepLoop: one thread's stretch of work on one step, with the list of nodes that this thread has
// made ready and not begun.
//
// Loops of one thread nest when a sink or a callback leads into another step; what is made ready
// for a step that has a loop further out on the same thread goes to that loop's list, so that the
// stack stays bounded by the number of steps. Private to the step folder.
#pragma once

#include <atomic>
#include <cstdint>

#include "executor/plan/plan_data.h"
#include "executor/step/node_runner.h"
#include "executor/step/running_node.h"
#include "executor/step/step_executor.h"

namespace monograph {

class StepLoop {
 public:
  // `compute`: this thread runs every node. Otherwise it has other duties: it runs cheap nodes
  // within a budget and leaves the others to the inter-op threads. REQUIRES: the caller has a hold
  // of the step until the loop is destroyed.
  StepLoop(Step& step, bool compute);
  ~StepLoop() {
    innermost_ = outer_;
    running_.Set(outer_node_);
    running_.SetStep(outer_step_);
  }
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // Lets add(loop) put nodes on the list of this thread's loop for the step, which runs them later,
  // or else of a loop made here, which has run when this returns.
  template <typename Add>
  static void Continue(Step& step, Add add) {
    if (StepLoop* outer = Find(step)) return add(*outer);
    StepLoop loop(step, /*compute=*/false);
    add(loop);
    loop.Run();
  }
  // Runs `head` and what its links lead to, on an inter-op thread, and gives up a hold of the step.
  static void RunTask(void* step, int32_t head);

  // Makes `node` ready.
  void Push(int32_t node) {
    next(node) = head_;
    head_ = node;
    cost_ += ShareCost(node);
  }
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
  static StepLoop* Find(const Step& step);

  int32_t& next(int32_t node) { return next_[node]; }
  // Relaxed: an estimate, which any step may replace at any time.
  uint8_t CostBits(int32_t node) const {
    return plan_.cost_bits[static_cast<size_t>(node)].load(std::memory_order_relaxed);
  }
  // What a node adds to the worth of sharing the list. One below 1 us adds nothing, however many
  // there are: two threads lose more on the memory that both write.
  int64_t ShareCost(int32_t node) const {
    constexpr uint8_t kShareableBits = 11;
    const uint8_t bits = CostBits(node);
    return bits < kShareableBits ? 0 : int64_t{1} << (bits - 1);
  }
  // True if `node` waits for nothing else.
  bool CountDown(int32_t node) {
    return std::atomic_ref<uint32_t>(pending_[node]).fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  int32_t Pop();
  bool MayRunHere(int32_t node);

  int32_t Execute(int32_t id);
  int32_t ExecuteOther(int32_t id, const PlanNode& node);
  int32_t ExecuteSpecial(int32_t id, const PlanNode& node);
  int32_t ExecuteSend(int32_t id, const PlanNode& node);
  void StartAsync(int32_t id, const PlanNode& node);
  int32_t Propagate(int32_t id, const PlanNode& node, Tensor* outputs);
  int32_t PropagateInline(int32_t id, const PlanNode& node, Tensor* outputs);
  int32_t KernelFailed(int32_t id, const PlanNode& node, const Status& status);
  void WrongOutput(int32_t id, const DataEdge& edge, const Tensor& output);
  void Fail(int32_t id, const Status& status);
  void Aborted(int32_t last);

  void Share();
  void Defer(int32_t node);
  void HandOverDeferred();
  void Enqueue(int32_t list);
  void Flush();

  static thread_local StepLoop* innermost_;

  Step& step_;
  const PlanData& plan_;
  StepState& state_;
  const bool compute_;
  const bool timed_;  // kernels are measured
  const MemoryHolder::Scope memory_;
  NodeRunner runner_;
  StepLoop* const outer_;         // of this thread
  RunningNode& running_;          // of this thread
  const Step* const outer_step_;  // what the thread is about otherwise
  const int32_t outer_node_;
  int32_t head_ = -1;                                 // of the list
  int32_t deferred_first_ = -1, deferred_last_ = -1;  // in the order of deferring
  int32_t finished_ = 0;                              // nodes, since the last Flush
  int64_t cost_ = 0;                                  // of the list, roughly
  int64_t budget_;
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
