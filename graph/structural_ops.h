// The ops that the graph layer itself gives meaning to. Everything else comes from ops/.
//
//   _Arg, _Retval        arguments and results of a function body (attrs T, index)
//   _Send(tensor: N * T) attrs T, N (0 or 1, from the inputs), edge_id: int,
//                        send_device, recv_device: string, tensor_name, priority: int
//   _Recv() -> tensor: T attrs T (named tensor_type in TensorFlow), the same others, and shape
//                        A control edge between tasks is a _Send with attr control = true and no
//                        input, and a _Recv whose (empty float) output nobody reads.
//   _GpuSegment, _GpuCopy, _GpuFence   what an executor makes of a GPU's nodes when it compiles its
//                        part; no graph that a client builds has them
//   _RecursionEnd        fails with its attribute `text`: what InlineFunctions puts in place of a
//                        call of a function within itself that would go too deep
//   PartitionedCall, StatefulPartitionedCall   attrs Tin, Tout, f
//   If, Case, While and their Stateless forms: control flow by functions, which InlineFunctions
//                        makes Switches, Merges and loops of (graph/control_flow.h)
//
// Other layers know them by these functions and names.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace monograph {

class OpRegistry;

inline constexpr std::string_view kArgOp = "_Arg";
inline constexpr std::string_view kGpuSegmentOp = "_GpuSegment";
inline constexpr std::string_view kGpuCopyOp = "_GpuCopy";
inline constexpr std::string_view kGpuFenceOp = "_GpuFence";
inline constexpr std::string_view kRecursionEndOp = "_RecursionEnd";
// TensorFlow's op that ends what a handle names.
inline constexpr char kDestroyResourceOp[] = "DestroyResourceOp";

inline bool IsArg(const Graph& graph, NodeId node) { return graph.is(node, kArgOp); }
inline bool IsRetval(const Graph& graph, NodeId node) { return graph.is(node, "_Retval"); }
inline bool IsSend(const Graph& graph, NodeId node) { return graph.is(node, "_Send"); }
inline bool IsRecv(const Graph& graph, NodeId node) { return graph.is(node, "_Recv"); }
inline bool IsCall(const Graph& graph, NodeId node) {
  return graph.is(node, "PartitionedCall") || graph.is(node, "StatefulPartitionedCall");
}

// If, Case, While or For.
bool IsFunctional(const Graph& graph, NodeId node);

void AddStructuralOps(OpRegistry* registry);

}  // namespace monograph
