// FuseChains: the rewrite that makes one node of a chain of elementwise ops on a GPU, which then
// reads and writes memory once.
//
//   AddV2(Mul(x, a), b), Relu       becomes  _FusedElementwise(x, a, b)  with ops = [Mul, AddV2, Relu]
//
// Only where nobody else uses what lies between, on one GPU, of one type of floats and one shape.
// The last node keeps its name. The results have the same bits.
#pragma once

#include "graph/graph.h"

namespace monograph {

// A graph without chains comes back as it is.
Result<Graph> FuseChains(Graph graph);

}  // namespace monograph
