#include "client/master/placed_graph.h"

#include <algorithm>
#include <utility>

#include "graph/function.h"

namespace monograph {

Result<PlacedGraph> PlacedGraph::Make(const Graph& user, const PlacedGraph* before,
                                      const std::vector<DeviceInfo>& devices,
                                      const PlaceOptions& options) {
  const std::vector<NodeId> spanning = CallsThatSpanTasks(user);
  const auto spans = [&spanning](NodeId call) {
    return std::binary_search(spanning.begin(), spanning.end(), call);
  };
  InlineMap map;
  MG_ASSIGN_OR_RETURN(Graph copy, InlineFunctions(user, spans, spanning.empty() ? nullptr : &map));
  PlacedGraph placed(std::move(copy));
  placed.user_nodes_ = user.num_nodes();
  for (const NodeId call : spanning) {
    const auto id = static_cast<size_t>(call);
    placed.inlined_[call] = {std::move(map.outputs[id]), std::move(map.done[id])};
  }
  Graph& graph = placed.graph_;
  for (NodeId node = 0; before != nullptr && node < graph.num_nodes(); ++node) {
    const NodeId earlier = before->graph_.Find(graph.name(node));
    if (earlier >= 0) graph.SetDevice(node, graph.InternDevice(before->graph_.device(earlier)));
  }
  MG_RETURN_IF_ERROR(Place(&graph, devices, options, &placed.notes_));
  return placed;
}

Endpoint PlacedGraph::Find(const Graph& user, Endpoint endpoint) const {
  if (const auto call = inlined_.find(endpoint.node); call != inlined_.end())
    return call->second.outputs[static_cast<size_t>(endpoint.index)];
  return {graph_.Find(user.name(endpoint.node)), endpoint.index};
}

std::vector<NodeId> PlacedGraph::Find(const Graph& user, NodeId target) const {
  if (const auto call = inlined_.find(target); call != inlined_.end()) return call->second.done;
  return {graph_.Find(user.name(target))};
}

}  // namespace monograph
