// All rewrites that a daemon does to its part of a graph before kernels are made.
#pragma once

#include "base/status.h"
#include "graph/graph.h"

namespace monograph {

// Groups updates of variables, fuses products and convolutions with what follows them, then chains
// of elementwise ops, then groups casts. The graph computes the same bits. An error is that of a
// graph that names an op or an attribute that the rewrites' own ops refuse, or that can never have
// the memory that it needs (ops/rewrites/least_memory.h).
Result<Graph> RewriteForExecution(Graph graph);

}  // namespace monograph
