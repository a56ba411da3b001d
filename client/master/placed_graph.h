// PlacedGraph: a copy of the user's graph in which every node has a device. It covers the whole
// graph and not what one signature needs: a node has the same device in every signature.
//
// Calls whose bodies request devices of several tasks stand in it as the nodes of their bodies.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/place.h"
#include "graph/placement_log.h"

namespace monograph {

class PlacedGraph {
 public:
  // Nodes that `before` (may be nullptr) has placed keep their devices.
  static Result<PlacedGraph> Make(const Graph& user, const PlacedGraph* before,
                                  const std::vector<DeviceInfo>& devices,
                                  const PlaceOptions& options);

  const Graph& graph() const { return graph_; }
  const std::vector<PlacementNote>& notes() const { return notes_; }
  // False if the user's graph has grown since.
  bool Covers(const Graph& user) const { return user_nodes_ == user.num_nodes(); }

  // The tensor or nodes of this graph that stand for one of the user's graph.
  Endpoint Find(const Graph& user, Endpoint endpoint) const;
  std::vector<NodeId> Find(const Graph& user, NodeId target) const;

 private:
  explicit PlacedGraph(Graph graph) : graph_(std::move(graph)) {}

  // Where the outputs of a call come from whose body stands in its place, and the nodes that have
  // run once the call would have.
  struct InlinedCall {
    std::vector<Endpoint> outputs;
    std::vector<NodeId> done;
  };

  Graph graph_;
  std::vector<PlacementNote> notes_;
  int user_nodes_ = 0;
  std::map<NodeId, InlinedCall> inlined_;  // by the call in the user's graph
};

}  // namespace monograph
