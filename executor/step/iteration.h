// The memory of a step whose plan has control flow. Iteration: one iteration of a loop (or all that
// is outside of loops), with a LoopRun for each loop within it. LoopRun: a loop that runs; its
// iterations are recycled, so that a loop of a million of them takes the memory of those that run
// at the same time. FlowState: of the whole step. Private to the step folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/tensor.h"
#include "executor/plan/flow_plan.h"
#include "executor/plan/plan_data.h"
#include "executor/step/loop_arrivals.h"

namespace monograph {

class Step;
struct Iteration;
struct LoopRun;

// A node of an iteration: what lists of ready nodes are made of.
struct FlowItem {
  Iteration* iteration = nullptr;
  int32_t node = -1;
  bool valid() const { return iteration != nullptr; }
};

struct FlowState {
  explicit FlowState(const PlanData& plan);
  ~FlowState();
  // Before a step.
  void Begin(Step* of);
  // Drops the tensors that an ended step still holds; `complete`: it ended well.
  void Clear(bool complete);
  // visit(number of the node, its frame), for each asynchronous kernel of each iteration.
  template <typename Visit>
  void ForEachAsync(const Visit& visit);

  const PlanData& plan;
  Step* step = nullptr;
  std::unique_ptr<Iteration> root;
  LoopArrivals arrivals;
};

struct Iteration {
  Iteration(FlowState* flow_state, const FlowFrame* of, LoopRun* in);
  ~Iteration();

  uint32_t& pending(int32_t node) const { return words[static_cast<size_t>(node - first_node)]; }
  FlowItem& link(int32_t node) const { return links[static_cast<size_t>(node - first_node)]; }
  // As new, for the iteration with this number.
  void Reset(int64_t number);
  void Clear(bool complete);

  FlowState* const state;
  const FlowFrame* const frame;
  LoopRun* const run;  // that it is an iteration of; nullptr outside of loops
  const int32_t first_node;
  int64_t index = 0;
  bool first = true;  // and so are the iterations around it
  // Differs from iteration to iteration, in the same way in every run and at every task.
  uint64_t draw = 0;
  // Its name for other tasks: its number from 1, and in a nested loop a hash of that and of the
  // iteration around it; 0 outside of loops.
  uint64_t id = 0;
  // Nodes that are ready and have not ended, and loops within it. (Outside of loops
  // Step::remaining_ counts.) At 0 the iteration is over, unless more comes from the iteration
  // before it or from outside.
  std::atomic<int32_t> outstanding{0};
  std::atomic<Iteration*> next{nullptr};
  std::unique_ptr<uint32_t[]> words;  // by node: see flow_plan.h
  std::unique_ptr<FlowItem[]> links;  // by node: links of lists
  std::unique_ptr<Tensor[]> slots;
  std::vector<std::unique_ptr<AsyncFrame>> async;
  std::vector<std::unique_ptr<LoopRun>> loops;  // by FlowFrame::child
};

struct LoopRun {
  LoopRun(Iteration* around, const FlowFrame* of);
  struct Value {
    int32_t node;
    Tensor tensor;  // invalid: dead
  };

  void Open() MG_REQUIRES(mutex);
  Iteration* Begin() MG_REQUIRES(mutex);  // the next iteration
  void Retire() MG_REQUIRES(mutex);       // the oldest one
  void Clear(bool complete);

  Iteration* const parent;
  const FlowFrame* const frame;
  std::unique_ptr<std::atomic<bool>[]> left;  // by exit: it was taken

  Mutex mutex;
  bool open MG_GUARDED_BY(mutex) = false;
  int32_t enters_left MG_GUARDED_BY(mutex) = 0;      // that have not come
  Iteration* oldest MG_GUARDED_BY(mutex) = nullptr;  // of those that run; a list by Iteration::next
  Iteration* newest MG_GUARDED_BY(mutex) = nullptr;
  int64_t running MG_GUARDED_BY(mutex) = 0;  // iterations
  int64_t begun MG_GUARDED_BY(mutex) = 0;
  std::vector<Value> constants MG_GUARDED_BY(mutex);
  // What the newest iteration hands to the next one, which may not begin yet.
  std::vector<Value> waiting MG_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Iteration>> all MG_GUARDED_BY(mutex);
  std::vector<Iteration*> free MG_GUARDED_BY(mutex);
};

template <typename Visit>
void VisitAsync(Iteration& iteration, const Visit& visit) {
  for (size_t i = 0; i < iteration.async.size(); ++i)
    visit(iteration.frame->async[i].node, *iteration.async[i]);
  for (const auto& loop : iteration.loops) {
    MutexLock lock(loop->mutex);
    for (const auto& inner : loop->all) VisitAsync(*inner, visit);
  }
}

template <typename Visit>
void FlowState::ForEachAsync(const Visit& visit) {
  VisitAsync(*root, visit);
}

}  // namespace monograph
