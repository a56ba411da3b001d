// What a plan reads off a task's graph beyond its edges: which _Recv gets its tensor from a _Send
// of the same graph, and in which order the nodes can run.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/topological_sort.h"

namespace monograph {

// "node 'x' (Op) on /job:...", for messages.
std::string NodeAndDevice(const Graph& graph, NodeId node);

// By node: for a _Recv whose _Send is in the graph, too, that _Send; else -1. InvalidArgument if
// two _Sends, or two _Recvs, have the same edge.
Result<std::vector<NodeId>> LinkedSends(const Graph& graph);

// Every node behind all that it waits for, also a _Recv behind its _Send, but for back edges of
// loops. InvalidArgument names the nodes of another cycle.
Result<std::vector<NodeId>> TaskOrder(const Graph& graph, const std::vector<NodeId>& linked_sends,
                                      NextReady next);

}  // namespace monograph
