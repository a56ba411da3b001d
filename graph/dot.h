// Graphs for Graphviz.
#pragma once

#include <string>

#include "graph/graph.h"

namespace monograph {

std::string GraphToDot(const Graph& graph);

}  // namespace monograph
