#include "executor/plan/plan_data.h"
#include "executor/step/iteration.h"
#include "executor/step/running_node.h"
#include "executor/step/step_executor.h"

namespace monograph {
namespace {

std::string Named(const PlanData& plan, int32_t id) {
  return "node '" + plan.names[static_cast<size_t>(id)] + "' (" +
         std::string(plan.ops[static_cast<size_t>(id)]) + ")";
}

// " of 'q' (FIFOQueueV2)" for a node whose first input is a resource; "" of others.
std::string OfResource(const PlanData& plan, int32_t id) {
  const PlanNode& node = plan.nodes[static_cast<size_t>(id)];
  for (int32_t from = 0; from < id && node.num_inputs > 0; ++from) {
    const PlanNode& made = plan.nodes[static_cast<size_t>(from)];
    const DataEdge* const edges = plan.edges.data() + made.first_edge;
    for (const DataEdge* edge = edges; edge != edges + made.num_edges; ++edge) {
      if (edge->slot != node.first_input) continue;
      if (static_cast<DType>(edge->dtype) != DT_RESOURCE) return "";
      return " of '" + plan.names[static_cast<size_t>(from)] + "' (" +
             std::string(plan.ops[static_cast<size_t>(from)]) + ")";
    }
  }
  return "";
}

}  // namespace

Step::Progress Step::progress(bool with_nodes) {
  Progress progress;
  if (!TryHold()) return progress;
  const PlanData& plan = plan_->data();
  // Relaxed: what is seen may be a moment old, and publishes nothing.
  progress.plan = plan_;
  progress.left = remaining_.load(std::memory_order_relaxed);
  progress.awaited = Awaited();
  if (state_->flow != nullptr) progress.brought = state_->flow->arrivals.brought();
  const auto waits_for_others = [&plan](int32_t id) {
    const NodeKind kind = plan.nodes[static_cast<size_t>(id)].kind;
    return kind == NodeKind::kAsync || kind == NodeKind::kTrailing;
  };
  if (with_nodes) {
    for (const int32_t id : RunningNode::Of(*this)) {
      // What a thread saw of another step at the same place is no node of this one.
      if (id < plan.num_nodes && !waits_for_others(id))
        progress.computing.push_back(Named(plan, id));
    }
    const auto add = [&](int32_t id, AsyncFrame& frame) {
      if (frame.cancel.waits()) progress.waiting.push_back(Named(plan, id) + OfResource(plan, id));
    };
    if (state_->flow != nullptr) {
      state_->flow->ForEachAsync(add);
    } else {
      for (int32_t id = 0; id < plan.num_nodes; ++id)
        if (waits_for_others(id)) add(id, *state_->frames[plan.nodes[static_cast<size_t>(id)].aux]);
    }
  }
  Release();
  return progress;
}

}  // namespace monograph
