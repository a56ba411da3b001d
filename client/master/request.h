// What a signature asks for, from its names to the graph of its step.
#pragma once

#include <vector>

#include "client/master.h"
#include "graph/graph.h"

namespace monograph {

// What the names of a signature mean in the user's graph.
struct ResolvedSignature {
  std::vector<Endpoint> feeds, fetches;
  std::vector<NodeId> targets;
};

// The tensors that a step feeds and fetches, and the nodes that it runs, in one graph.
struct StepRequest {
  std::vector<Endpoint> feeds;    // one per feed of the signature; invalid: nothing reads it
  std::vector<Endpoint> fetches;  // each once, none of them fed
  std::vector<NodeId> targets;
};

// A graph and what a step asks of it.
struct StepGraph {
  Graph graph;
  StepRequest request;
};

// Finds the signature's names. NotFound and InvalidArgument name what is wrong with which.
Result<ResolvedSignature> Resolve(const Graph& graph, const Signature& signature);

// What a signature asks of the placed graph, and where its values come from.
struct PlacedRequest {
  StepRequest step;
  std::vector<PreparedStep::Value> values;
};

// The tensors and nodes of `placed` for those of the user's graph.
PlacedRequest FindIn(const PlacedGraph& placed, const Graph& user,
                     const ResolvedSignature& resolved);

// What the step needs of `graph`; feeds that nothing reads become invalid.
Result<StepGraph> PruneTo(const StepRequest& request, const Graph& graph);

// The same with variables by handle in place of those by reference (graph/references.h).
Result<StepGraph> WithHandles(StepGraph step);

// Optimize, as `options` say.
Result<StepGraph> Optimised(StepGraph step, const OptimizeOptions& options,
                            const Evaluator& evaluate);

}  // namespace monograph
