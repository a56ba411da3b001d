// Pruning: what a step needs.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// The part of `graph` from which `fetches` and `targets` follow, not looking behind `feeds`. A fed output that is needed stays as its node without
// inputs (only its fed outputs may be read). `mapping` (may be null) gets the new id of every old node, -1 if dropped.
// Unimplemented "op 'Foo' (node 'bar') is not known here" if an op that the registry lacks is needed; InvalidArgument names the nodes of a cycle.
Result<Graph> Prune(const Graph& graph, std::span<const Endpoint> feeds, std::span<const Endpoint> fetches,
                    std::span<const NodeId> targets, std::vector<NodeId>* mapping);

}  // namespace monograph
