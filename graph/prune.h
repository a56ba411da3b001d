// Pruning: what a step needs.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// The part of `graph` from which `fetches` and `targets` follow, not looking behind `feeds`. A node
// of which only fed outputs are needed stays without its inputs; one that must run all the same (a
// target, or another output of it is needed) keeps them. Who waits for a node whose output 0 is fed
// waits for the feed. `mapping` (may be null) gets the new id of every old node, -1 if dropped.
// Unimplemented, naming the node and the op, if an op that the registry lacks is needed;
// InvalidArgument names the nodes of a cycle.
Result<Graph> Prune(const Graph& graph, std::span<const Endpoint> feeds,
                    std::span<const Endpoint> fetches, std::span<const NodeId> targets,
                    std::vector<NodeId>* mapping);

}  // namespace monograph
