#include "graph/lost_updates.h"

#include <map>
#include <optional>
#include <vector>

#include "graph/control_flow.h"
#include "graph/op_def.h"

namespace monograph {
namespace {

// The nodes that `of` waits for, itself among them. With `of_data` only those whose tensors it
// uses.
std::vector<bool> Ancestors(const Graph& graph, NodeId of, bool of_data) {
  std::vector<bool> found(static_cast<size_t>(graph.num_nodes()), false);
  std::vector<NodeId> left{of};
  found[static_cast<size_t>(of)] = true;
  const auto visit = [&](NodeId id) {
    if (found[static_cast<size_t>(id)]) return;
    found[static_cast<size_t>(id)] = true;
    left.push_back(id);
  };
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    for (const Endpoint& e : graph.inputs(id)) visit(e.node);
    if (of_data) continue;
    for (const NodeId source : graph.control_inputs(id)) visit(source);
  }
  return found;
}

struct Variable {
  std::vector<NodeId> updates;  // of whatever kind
  std::vector<NodeId> reads;
};

std::map<NodeId, Variable> Variables(const Graph& graph) {
  std::map<NodeId, Variable> variables;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    for (const Endpoint& e : graph.inputs(id)) {
      if (graph.dtype(e) != DT_RESOURCE || !graph.is(e.node, "VarHandleOp")) continue;
      Variable& variable = variables[e.node];
      if (graph.is(id, "ReadVariableOp")) {
        variable.reads.push_back(id);
      } else if (graph.op(id).stateful() && !graph.op(id).reads_only()) {
        variable.updates.push_back(id);
      }
    }
  }
  return variables;
}

}  // namespace

Status OrderLostUpdates(Graph* graph) {
  std::optional<ControlFlow> flow;
  const auto unconditional = [&flow](NodeId id) {
    return flow->frames.empty() || flow->region[static_cast<size_t>(id)] == 0;
  };
  for (const auto& [handle, variable] : Variables(*graph)) {
    if (variable.updates.size() < 2 || variable.reads.empty()) continue;
    std::vector<NodeId> own, others;  // assignments of what comes from a read; other updates
    for (const NodeId update : variable.updates) {
      bool from_read = false;
      if (graph->is(update, "AssignVariableOp")) {
        const std::vector<bool> data = Ancestors(*graph, update, true);
        for (const NodeId read : variable.reads)
          from_read = from_read || data[static_cast<size_t>(read)];
      }
      (from_read ? own : others).push_back(update);
    }
    if (own.empty() || others.empty()) continue;
    if (!flow) {
      flow.emplace();
      if (HasControlFlow(*graph)) {
        MG_ASSIGN_OR_RETURN(*flow, FindControlFlow(*graph));
      }
    }
    for (const NodeId assignment : own) {
      if (!unconditional(assignment)) continue;
      const std::vector<bool> before = Ancestors(*graph, assignment, false);
      for (const NodeId update : others) {
        if (unconditional(update) && !before[static_cast<size_t>(update)])
          graph->AddControlInput(update, assignment);
      }
    }
  }
  return Status();
}

}  // namespace monograph
