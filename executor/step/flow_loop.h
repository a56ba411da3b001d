// FlowLoop: a StepLoop (executor/step/step_loop.h) for plans with control flow, whose nodes may be
// dead, or run in several iterations of a loop at the same time. A plan without control flow never
// comes here. Private to the step folder.
#pragma once

#include <atomic>
#include <cstdint>

#include "executor/plan/plan_data.h"
#include "executor/step/iteration.h"
#include "executor/step/node_runner.h"
#include "executor/step/running_node.h"
#include "executor/step/step_executor.h"

namespace monograph {

class FlowLoop {
 public:
  // As StepLoop's.
  FlowLoop(Step& step, bool compute);
  ~FlowLoop() {
    innermost_ = outer_;
    running_.Set(outer_node_);
    running_.SetStep(outer_step_);
  }
  FlowLoop(const FlowLoop&) = delete;
  FlowLoop& operator=(const FlowLoop&) = delete;

  // As StepLoop::Continue.
  template <typename Add>
  static void Continue(Step& step, Add add) {
    if (FlowLoop* outer = Find(step)) return add(*outer);
    FlowLoop loop(step, /*compute=*/false);
    add(loop);
    loop.Run();
  }

  // Makes ready what waits for nothing but the start of the step.
  void PushRoots();
  // One of the things that a _Recv waits for is there.
  void ArriveRecv(int32_t node);
  void Run();

 private:
  static FlowLoop* Find(const Step& step);
  // Runs a list, on an inter-op thread, and gives up a hold of the step.
  static void RunTask(void* iteration, int32_t head);

  // Relaxed: an estimate, which any step may replace at any time.
  uint8_t CostBits(int32_t node) const {
    return plan_.cost_bits[static_cast<size_t>(node)].load(std::memory_order_relaxed);
  }
  int64_t ShareCost(int32_t node) const {
    constexpr uint8_t kShareableBits = 11;  // as in StepLoop
    const uint8_t bits = CostBits(node);
    return bits < kShareableBits ? 0 : int64_t{1} << (bits - 1);
  }
  static FlowItem& next(const FlowItem& item) { return item.iteration->link(item.node); }
  void Push(const FlowItem& item) {
    next(item) = head_;
    head_ = item;
    cost_ += ShareCost(item.node);
  }
  FlowItem Pop();
  FlowItem Next();
  bool MayRunHere(int32_t node);

  // What a thread counts by itself for the iteration that it works on. Counts are handed in before
  // anybody else can end a node that they are about.
  void Enter(Iteration* iteration);
  void HandIn();
  void Add(Iteration* iteration, int32_t nodes);
  void Drop(Iteration* iteration, int32_t nodes);
  void Over(Iteration* iteration);

  void Ready(Iteration* iteration, int32_t node);
  void Die(Iteration* iteration, int32_t node);
  void Arrive(Iteration* to, const FlowSuccessor& successor);
  void ArriveDead(Iteration* to, const FlowSuccessor& successor);
  void MergeValue(Iteration* to, const FlowSuccessor& successor);

  void Execute(const FlowItem& item);
  void Finished(Iteration* iteration);
  void ExecuteOther(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteSwitch(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteMerge(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteRecv(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteSend(Iteration* iteration, int32_t id, const PlanNode& node);
  void StartAsync(Iteration* iteration, int32_t id, const PlanNode& node);
  static void AsyncDone(Iteration* iteration, int32_t id, const Status& status);
  void CompleteAsync(Iteration* iteration, int32_t id);
  void EnterLoop(Iteration* iteration, int32_t id, const PlanNode& node, Tensor value);
  void LeaveLoop(Iteration* iteration, int32_t id, const PlanNode& node);
  void NextIteration(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteDead(const FlowItem& item);
  void SendDead(int32_t id, const PlanNode& node);

  Iteration* Begin(LoopRun& run) MG_REQUIRES(run.mutex);
  void HandConstant(Iteration* to, const LoopRun::Value& constant);
  bool RetireOver(LoopRun& run) MG_REQUIRES(run.mutex);
  void EndLoop(LoopRun& run);

  void Propagate(Iteration* to, int32_t id, const PlanNode& node, Tensor* outputs);
  void PropagateDead(Iteration* to, const PlanNode& node);
  void KernelFailed(const FlowItem& item, const PlanNode& node, const Status& status);
  void WrongOutput(int32_t id, const DataEdge& edge, const Tensor& output);
  void Fail(int32_t id, const Status& status);

  void Share();
  void Defer(const FlowItem& item);
  void HandOverDeferred();
  void Enqueue(const FlowItem& list);

  static thread_local FlowLoop* innermost_;

  Step& step_;
  const PlanData& plan_;
  const FlowPlan& flow_;
  StepState& state_;
  Iteration* const root_;
  const bool compute_;
  const MemoryHolder::Scope memory_;
  NodeRunner runner_;
  FlowLoop* const outer_;         // of this thread
  RunningNode& running_;          // of this thread
  const Step* const outer_step_;  // what the thread is about otherwise
  const int32_t outer_node_;
  Iteration* current_ = nullptr;
  bool timed_ = false;  // kernels of current_ are measured
  int32_t delta_ = 0;   // change of what is outstanding in current_
  FlowItem ready_;      // the next one to run
  FlowItem head_;       // of the list
  FlowItem dead_;       // head of the list of dead nodes
  FlowItem deferred_first_, deferred_last_;
  int64_t cost_ = 0;  // of the list, roughly
  int64_t budget_;
};

}  // namespace monograph
