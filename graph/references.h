// Variables by reference, as TensorFlow 1.x makes them by default: VariableV2, Assign, ApplyAdam...
//
// A user's graph holds them as TensorFlow wrote them: names, feeds, fetches, colocation and the
// placement log are the user's. What runs are variables by handle. ReplaceReferences turns the
// graph of one step, placed and pruned, into that: VariableV2 becomes a VarHandleOp of the same
// name, an op that takes a reference becomes its handle form (OpDef::handle_form) and takes the
// handle, and what wants a value gets a read. So there is one kind of variable, with its kernels,
// locks, rewrites and checkpoints, and a graph without references pays for none of this.
//
//   VariableV2 w ──┬─> Assign ──> y = AddN        VarHandleOp w ──┬─> AssignVariableOp ┄┐ (control)
//                  │                              ──>             └─> ReadVariableOp <┄┄┘ ──> y
//
// TensorFlow reads a reference when the kernel that wants the value runs, and what an Identity
// gives out is the variable's own memory, in which later updates show: moving averages that run
// behind the update count on that. So a node that runs behind a write in the step has a read of its
// own, which waits for the node's control inputs and other inputs; also for the output of an
// Identity, if that is on the node's device (to another it is sent as it was read). All other nodes
// share one read, and an Identity on the variable's device is a read. A fetch has the value behind
// all writes of the step that run for certain, as TensorFlow's fetches of its own memory do.
//
// The first queues, readers, tables, stacks and accumulators of TensorFlow give their handles as
// references to two strings (OpDef::StringReferenceForm). They are replaced in the same way, by the
// ops whose handles are resources; who reads the strings reads them by a _HandleStrings.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// Attribute (true) of nodes that stand for those of references: their kernels keep to the rules and
// the words of variables by reference.
inline constexpr std::string_view kByReference = "_mg_by_reference";

// Whether the node takes a reference at that input: it then runs where the variable is.
bool TakesReference(const Graph& graph, NodeId node, size_t input);

// The attributes that a node of an op with a handle form has in that form.
Attrs HandleFormAttrs(const Graph& graph, NodeId node);

struct WithoutReferences {
  Graph graph;
  std::vector<Endpoint> feeds, fetches;  // for those given; an invalid feed stays so
  std::vector<NodeId> nodes;             // by node of the graph before: what waits for it waits for
};

// InvalidArgument names the node that wants a reference and gets a value.
Result<WithoutReferences> ReplaceReferences(const Graph& graph, std::span<const Endpoint> feeds,
                                            std::span<const Endpoint> fetches);

}  // namespace monograph
