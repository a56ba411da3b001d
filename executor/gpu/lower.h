// Lowering: rewrites a task's graph so that the nodes of its GPUs become a few nodes of the plan:
// segments, copies and fences, each with its kernel.
//
//   x (CPU) ─► a (GPU) ─► b (GPU) ─► y (CPU)
//   x ─► _GpuCopy ─► _GpuSegment{a, b} ─► _GpuCopy ─► y
//                         └─^─► _GpuFence           the step ends when the GPU has ended it
//
// A tensor lies in host memory or in a GPU's; a kernel says which it wants (KernelDef::host_args;
// strings and resource handles are always on the host), and one copy is made per tensor and place.
// A linked _Send and _Recv pass on what they get; those that lead out of the plan want the host's.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "executor/kernel.h"
#include "executor/plan/plan.h"
#include "graph/graph.h"

namespace monograph {

struct LoweredGraph {
  Graph graph;
  std::unordered_map<NodeId, std::unique_ptr<Kernel>> kernels;  // of nodes that have theirs already
};

// Whether a node of `graph` is on a GPU.
bool HasGpuNodes(const Graph& graph, const PlanOptions& options);

// REQUIRES: HasGpuNodes. Errors name the node: no kernel for it, or one that refuses it.
Result<LoweredGraph> LowerGpuNodes(const Graph& graph, const PlanOptions& options);

}  // namespace monograph
