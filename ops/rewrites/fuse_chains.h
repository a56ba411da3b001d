// FuseChains: the rewrite that makes one node of a chain of elementwise ops on a GPU, which then
// reads and writes memory once.
//
//   AddV2(Mul(x, a), b), Relu       becomes  _FusedElementwise(x, a, b)  with ops = [Mul, AddV2, Relu]
//
// Only where nobody else uses what lies between, on one GPU, of one type of floats and one shape,
// and none of it in `keep` except the last node, which keeps its name. The results have the same
// bits.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// `mapping` (may be null) gets for every old node its new id or -1. A graph without chains comes
// back as it is.
Result<Graph> FuseChains(Graph graph, std::span<const NodeId> keep, std::vector<NodeId>* mapping);

}  // namespace monograph
