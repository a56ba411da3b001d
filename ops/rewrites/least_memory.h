// CheckLeastMemory: what a step of a task's graph needs of the host's memory at the least, whatever
// the order in which its nodes run, as far as inferred shapes tell:
//
//   the graph's constants, which live as long as it does, and the larger of
//     all inputs and outputs of one node, which are there while it computes, and
//     all variables that the step updates, or assigns something new to, which are there at its end.
//
// A tensor counts only if it certainly has memory of its own: what an op may pass on (Identity,
// Reshape, Relu in place) counts once, where it is made, or not at all. So a graph that fits is
// never refused.
#pragma once

#include "base/status.h"
#include "graph/graph.h"

namespace monograph {

// ResourceExhausted if that is more than the process may take (HostPool().limit()), or without the
// variables more than the share of MemoryHolder::Current(). Names the node, or the largest
// variables. REQUIRES: calls are inlined, nodes have the full names of their devices.
Status CheckLeastMemory(const Graph& graph);

}  // namespace monograph
