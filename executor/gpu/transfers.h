// Which tensors of a lowered graph other tasks take from a GPU's memory, or write to it, by
// themselves (Transport::TakesGpuMemory).
//
//   a (GPU) ─► _GpuCopy ─► _Send          to such tasks alone: the copy leaves the tensor there
//   _Recv ─► _GpuCopy ─► b (GPU)          for that GPU alone: the tensor may come there
//
// What comes and what the host reads, too, comes by way of it; so do tensors below
// kLeastGpuTransfer.
//
// And which leave in parts: to all other tasks but the client's. What comes so may come to a GPU,
// too.
#pragma once

#include <unordered_map>

#include "executor/gpu/lower.h"

namespace monograph {

// By _Send and _Recv.
struct GpuEdge {
  Device* gpu = nullptr;  // in whose memory the tensor may be
  bool in_parts = false;  // of a _Send
};
using GpuEdges = std::unordered_map<NodeId, GpuEdge>;

// Tells the copies among the lowered kernels.
Result<GpuEdges> FindGpuEdges(LoweredGraph* lowered, const PlanOptions& options);

}  // namespace monograph
