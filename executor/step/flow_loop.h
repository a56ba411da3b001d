// FlowLoop: a StepLoop (executor/step/step_loop.h) for plans with control flow, whose nodes may be
// dead, or run in several iterations of a loop at the same time. A plan without control flow never
// comes here. Private to the step folder.
#pragma once

#include <cstdint>

#include "executor/step/iteration.h"
#include "executor/step/ready_loop.h"

namespace monograph {

class FlowLoop : public ReadyLoop<FlowLoop, FlowItem, FlowItem{}> {
 public:
  // As ReadyLoop's.
  FlowLoop(Step& step, bool compute);

  // Makes ready what waits for nothing but the start of the step.
  void PushRoots();
  // One of the things that a _Recv outside of loops waits for is there.
  void ArriveRecv(int32_t node);
  // What the _Recv asked for in that iteration is there.
  void ResumeRecv(Iteration* iteration, int32_t node) { Push({iteration, node}); }
  void Run();

 private:
  friend class ReadyLoop<FlowLoop, FlowItem, FlowItem{}>;

  // Runs a list, on an inter-op thread, and gives up a hold of the step.
  static void RunTask(void* iteration, int32_t head);

  static int32_t NodeOf(const FlowItem& item) { return item.node; }
  static FlowItem& next(const FlowItem& item) { return item.iteration->link(item.node); }
  FlowItem Next();

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
  void HandOn(Iteration* iteration, int32_t id, const PlanNode& node, Tensor* received);
  void ExecuteRecv(Iteration* iteration, int32_t id, const PlanNode& node);
  void ReceiveInLoop(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteSend(Iteration* iteration, int32_t id, const PlanNode& node);
  void StartAsync(Iteration* iteration, int32_t id, const PlanNode& node);
  static void AsyncDone(Iteration* iteration, int32_t id, const Status& status);
  void CompleteAsync(Iteration* iteration, int32_t id);
  void EnterLoop(Iteration* iteration, int32_t id, const PlanNode& node, Tensor value);
  void LeaveLoop(Iteration* iteration, int32_t id, const PlanNode& node);
  void NextIteration(Iteration* iteration, int32_t id, const PlanNode& node);
  void ExecuteDead(const FlowItem& item);
  void SendDead(Iteration* iteration, int32_t id, const PlanNode& node);

  Iteration* Begin(LoopRun& run) MG_REQUIRES(run.mutex);
  void HandConstant(Iteration* to, const LoopRun::Value& constant);
  bool RetireOver(LoopRun& run) MG_REQUIRES(run.mutex);
  void EndLoop(LoopRun& run);

  void Propagate(Iteration* to, int32_t id, const PlanNode& node, Tensor* outputs);
  void PropagateDead(Iteration* to, const PlanNode& node);
  void KernelFailed(const FlowItem& item, const PlanNode& node, const Status& status);
  void Enqueue(const FlowItem& list);

  const FlowPlan& flow_;
  Iteration* const root_;
  Iteration* current_ = nullptr;
  bool timed_ = false;  // kernels of current_ are measured
  int32_t delta_ = 0;   // change of what is outstanding in current_
  FlowItem ready_;      // the next one to run
  FlowItem dead_;       // head of the list of dead nodes
};

}  // namespace monograph
