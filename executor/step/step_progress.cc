#include "executor/plan/plan_data.h"
#include "executor/step/iteration.h"
#include "executor/step/step_executor.h"

namespace monograph {

Step::Progress Step::progress(bool with_nodes) {
  Progress progress;
  if (!TryHold()) return progress;
  const PlanData& plan = plan_->data();
  // Relaxed, here and below: what is seen may be a moment old, and publishes nothing.
  progress.plan = plan_;
  progress.left = remaining_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < plan.recv_edges.size(); ++i) {
    if (state_->delivered[i].load(std::memory_order_relaxed) == 0)
      progress.awaited.push_back(&plan.recv_edges[i]);
  }
  const auto name = [&](int32_t id, AsyncFrame& frame) {
    if (!frame.cancel.waits()) return;
    progress.nodes.push_back("node '" + plan.names[static_cast<size_t>(id)] + "' (" +
                             std::string(plan.ops[static_cast<size_t>(id)]) + ")");
  };
  if (with_nodes && state_->flow != nullptr) state_->flow->ForEachAsync(name);
  for (int32_t id = 0; with_nodes && state_->flow == nullptr && id < plan.num_nodes; ++id) {
    const PlanNode& node = plan.nodes[static_cast<size_t>(id)];
    if (node.kind == NodeKind::kAsync || node.kind == NodeKind::kTrailing)
      name(id, *state_->frames[node.aux]);
  }
  Release();
  return progress;
}

}  // namespace monograph
