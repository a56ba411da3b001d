// Graph optimisation: constant folding and common-subexpression removal. Calls are inlined by the
// tasks that run them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace monograph {

struct OptimizeOptions {
  // As in OptimizerOptions: L0 does nothing; L1 (default) all that is switched on below.
  int level = 1;
  bool constant_folding = true;
  bool common_subexpression_elimination = true;
  int64_t max_folded_bytes = 1 << 20;  // larger results are not folded
};

// Computes one stateless node on constant inputs; the layers above supply it
// (executor/step/kernel_runner.h).
using Evaluator = std::function<Result<std::vector<Tensor>>(const Graph& graph, NodeId node,
                                                            std::span<const Tensor> inputs)>;

// `keep` are nodes whose names and outputs must survive (feeds, fetches, targets). Stateful nodes
// stay. Only nodes that request the same device are merged. `mapping` (may be null) gets for every
// old node its new id or -1.
Result<Graph> Optimize(const Graph& graph, const OptimizeOptions& options,
                       std::span<const NodeId> keep, const Evaluator& evaluate,
                       std::vector<NodeId>* mapping);

}  // namespace monograph
