// CheckGraph: everything in a GraphDef that a registry lacks, where ReadGraph keeps unknown ops in
// silence and stops at the first other fault.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace monograph {

struct NodeProblem {
  std::string op;
  std::string why;  // "no such op", or what is wrong with an attribute
  std::string node;
  std::string function = {};  // whose body holds the node; "": the graph itself
};

struct GraphCheck {
  int nodes = 0;                      // with those of functions
  std::set<std::string> ops;          // of these nodes; calls by a function's name are none
  std::vector<NodeProblem> problems;  // in the order of the file
  // The rest: nodes that have problems stand there as nodes of unknown ops without inputs (so it
  // also loads when only those close a cycle). A failure names the first node that does not fit.
  Result<Graph> graph;
};

// The file is .pb or .pbtxt. A failure is one of the file: it cannot be read, or holds no GraphDef.
Result<GraphCheck> CheckGraph(const std::string& path, const OpRegistry* registry);

}  // namespace monograph
