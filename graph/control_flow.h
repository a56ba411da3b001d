// Control flow: loops and branches of a graph in TensorFlow's 1.x way, found from its nodes.
//
// A Switch hands its data to one of its two outputs; the other is *dead*. A node with a dead input,
// or that waits for a dead node, does not run and is dead, too. A Merge runs as soon as one of its
// inputs is not dead. A *frame* is a loop: Enters lead into it, Exits out of it, NextIterations to
// its next iteration. An Enter runs outside of the loop that it leads into, an Exit inside.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// Attribute of a _Send or a _Recv whose tensor may be dead.
inline constexpr std::string_view kMayBeDead = "_mg_may_be_dead";

struct LoopFrame {
  std::string name;     // its Enters' frame_name; "" outside of all loops
  int32_t parent = -1;  // index of the frame that it is nested in
  int64_t parallel_iterations = 1;
};

// The node runs only if predicate `of` has `value` (0 or 1); with kAlone, only if `of` is not dead.
struct Guard {
  static constexpr int32_t kAlone = 2;
  Endpoint of;  // behind Identities and such
  int32_t value;
  friend auto operator<=>(const Guard&, const Guard&) = default;
};
using Guards = std::vector<Guard>;  // sorted

struct ControlFlow {
  std::vector<LoopFrame> frames;  // each behind its parent; [0]: outside of all loops
  std::vector<int32_t> frame;     // by node: index of the frame that it runs in
  // By node. Nodes of one region run in the same iterations of the same frame: in each of them all
  // run, or none. Region 0: outside of all loops and branches.
  std::vector<int32_t> region;

  // The frame that the outputs of a node belong to, and what waits for it.
  int32_t FrameOfOutputs(const Graph& graph, NodeId node) const;
  // "loop 'while'" or "no loop".
  std::string FrameText(int32_t frame) const;

  // By node: the frame that an Enter leads into; -1 for others.
  std::vector<int32_t> entered;
  // Under which conditions a node runs: by node an index of guard_sets.
  std::vector<int32_t> guards;
  std::vector<Guards> guard_sets;
  const Guards& GuardsOf(NodeId node) const {
    return guard_sets[static_cast<size_t>(guards[static_cast<size_t>(node)])];
  }
};

// Whether any node changes the flow of control, or may get a dead tensor from elsewhere. Of a graph
// without such nodes nothing here needs to be known.
bool HasControlFlow(const Graph& graph);

// InvalidArgument names the node where loops are not nested as they must be: it has inputs from
// several frames, leaves a loop that it is not in, or belongs to a loop that is entered from two.
Result<ControlFlow> FindControlFlow(const Graph& graph);

// What a Switch's predicate comes from, behind what only passes it on: as Guard::of.
Endpoint PredicateOf(const Graph& graph, NodeId switch_node);

}  // namespace monograph
