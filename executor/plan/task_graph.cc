#include "executor/plan/task_graph.h"

#include <cstdint>
#include <unordered_map>

#include "graph/structural_ops.h"

namespace monograph {

std::string NodeAndDevice(const Graph& graph, NodeId node) {
  return "node " + graph.NodeText(node) + " on " + graph.device(node).ToString();
}

Result<std::vector<NodeId>> LinkedSends(const Graph& graph) {
  std::unordered_map<int64_t, NodeId> sends, recvs;  // by edge
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!IsSend(graph, id) && !IsRecv(graph, id)) continue;
    auto& side = IsSend(graph, id) ? sends : recvs;
    const auto [other, fresh] = side.emplace(graph.attrs(id).Get<int64_t>("edge_id"), id);
    if (fresh) continue;
    return InvalidArgument(NodeAndDevice(graph, id) + ": edge " + std::to_string(other->first) +
                           " is also that of node '" + std::string(graph.name(other->second)) +
                           "'");
  }
  std::vector<NodeId> linked(static_cast<size_t>(graph.num_nodes()), -1);
  for (const auto& [edge, recv] : recvs) {
    if (const auto send = sends.find(edge); send != sends.end())
      linked[static_cast<size_t>(recv)] = send->second;
  }
  return linked;
}

Result<std::vector<NodeId>> TaskOrder(const Graph& graph, const std::vector<NodeId>& linked_sends,
                                      NextReady next) {
  const auto count = static_cast<size_t>(graph.num_nodes());
  std::vector<std::vector<NodeId>> after(count);
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const auto follows = [&](NodeId source) { after[static_cast<size_t>(source)].push_back(id); };
    for (const Endpoint& e : graph.inputs(id)) {
      if (!graph.IsBackEdge(e.node, id)) follows(e.node);
    }
    for (const NodeId control : graph.control_inputs(id)) follows(control);
    if (const NodeId send = linked_sends[static_cast<size_t>(id)]; send >= 0) follows(send);
  }
  const auto for_each_target = [&](NodeId id, const auto& visit) {
    for (const NodeId target : after[static_cast<size_t>(id)]) visit(target);
  };
  std::vector<NodeId> order = TopologicalSort(count, next, for_each_target);
  if (order.size() == count) return order;
  return InvalidArgument(
      "the nodes of this task wait for each other in a cycle: " +
      CycleText(count, order, for_each_target, [&](NodeId id) { return graph.name(id); }));
}

}  // namespace monograph
