#include "executor/gpu/places.h"

#include "executor/plan/task_graph.h"
#include "graph/structural_ops.h"

namespace monograph {

// With control flow all is on the host at first; what GPUs make is then followed around loops until
// nothing more comes to be there.
Status TensorPlaces::Find(const std::vector<NodeId>& order) {
  const bool has_flow = graph_.has_flow_ops();
  for (PlacedNode* node : nodes_) node->places.assign(node->host_outputs.size(), kHost);
  std::vector<std::pair<NodeId, NodeId>> back_edges;
  for (NodeId id = 0; has_flow && id < graph_.num_nodes(); ++id) {
    for (const Endpoint& e : graph_.inputs(id)) {
      if (graph_.IsBackEdge(e.node, id)) back_edges.emplace_back(e.node, id);
    }
  }
  for (const auto& [next, merge] : back_edges) merge_of_[next] = merge;
  if (has_flow) FindLoopConstants();
  bool changed;
  do {
    changed = false;
    for (const NodeId id : order) changed = PlaceOutputs(id) || changed;
  } while (changed && has_flow);
  for (const auto& [next, merge] : back_edges) {
    if (Of({next, 0}) == Of({merge, 0})) continue;
    return Unimplemented(NodeAndDevice(graph_, next) +
                         " hands a tensor to the next iteration for " +
                         NodeAndDevice(graph_, merge) +
                         " and for a Merge that has it elsewhere; let each have a NextIteration of "
                         "its own");
  }
  for (PlacedNode* node : nodes_) {
    if (!node->on_host) continue;
    node->host_inputs.assign(node->host_inputs.size(), true);
    node->host_outputs.assign(node->host_outputs.size(), true);
  }
  return Status();
}

// What a loop does not change and a node of the GPU reads is copied there once, before the loop.
void TensorPlaces::FindLoopConstants() {
  for (NodeId id = 0; id < graph_.num_nodes(); ++id) {
    const PlacedNode& node = at(id);
    for (size_t i = 0; i < graph_.inputs(id).size(); ++i) {
      const NodeId enter = graph_.inputs(id)[i].node;
      if (at(enter).flow != FlowOp::kEnter || node.gpu != at(enter).gpu || node.host_inputs[i] ||
          node.flow != FlowOp::kNone || node.on_host ||
          !graph_.attrs(enter).GetOr<bool>("is_constant", false))
        continue;
      for_gpu_.insert(enter);
    }
  }
}

// Returns whether a place has changed.
bool TensorPlaces::PlaceOutputs(NodeId id) {
  PlacedNode& node = at(id);
  bool changed = false;
  const auto place = [&](size_t output, int32_t where) {
    changed = changed || node.places[output] != where;
    node.places[output] = where;
  };
  if (const NodeId send = linked_send(id); send >= 0) {
    if (!graph_.inputs(send).empty()) place(0, Of(graph_.inputs(send)[0]));
  } else if (node.flow != FlowOp::kNone) {
    for (size_t i = 0; i < node.places.size(); ++i)
      place(i, PlaceOfFlow(id, static_cast<int32_t>(i)));
  } else {
    const auto lies_on_host = [&](Endpoint e) { return Of(e) == kHost; };
    node.on_host =
        node.on_host && (node.host_only() || std::ranges::all_of(graph_.inputs(id), lies_on_host));
    for (size_t i = 0; i < node.places.size(); ++i) {
      const bool variant = graph_.dtype({id, static_cast<int32_t>(i)}) == DT_VARIANT;
      place(i, node.on_host || (node.host_outputs[i] && !variant) ? kHost : node.gpu);
    }
  }
  return changed;
}

int32_t TensorPlaces::PlaceOfFlow(NodeId id, int32_t output) const {
  const auto inputs = graph_.inputs(id);
  switch (at(id).flow) {
    case FlowOp::kMerge:
      if (output > 0) return kHost;  // which input came
      for (const Endpoint& e : inputs) {
        const Endpoint from = graph_.IsBackEdge(e.node, id) ? graph_.inputs(e.node)[0] : e;
        if (Of(from) != kHost) return at(id).gpu;
      }
      return kHost;
    case FlowOp::kNextIteration: {
      const auto merge = merge_of_.find(id);
      return merge == merge_of_.end() ? kHost : Of({merge->second, 0});
    }
    case FlowOp::kEnter:
      if (for_gpu_.contains(id)) return at(id).gpu;
      return Of(inputs[0]);
    case FlowOp::kSwitch:
    case FlowOp::kExit:
      return Of(inputs[0]);
    case FlowOp::kLoopCond:
    case FlowOp::kTrigger:
    case FlowOp::kNone:
      break;
  }
  return kHost;
}

int32_t TensorPlaces::Wants(NodeId id, size_t input) const {
  const PlacedNode& node = at(id);
  if (IsSend(graph_, id) && node.linked) return Of(graph_.inputs(id)[input]);
  if (node.flow != FlowOp::kNone)
    return input == 0 || node.flow == FlowOp::kMerge ? node.places[0] : kHost;
  const bool variant = graph_.dtype(graph_.inputs(id)[input]) == DT_VARIANT;
  return node.host_inputs[input] && !variant ? kHost : node.gpu;
}

}  // namespace monograph
