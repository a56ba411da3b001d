// The first phase of lowering (executor/gpu/lower.h): what each node of a task's graph is. Private
// to the gpu folder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/gpu/members.h"
#include "executor/gpu/places.h"
#include "executor/kernel.h"
#include "executor/plan/plan.h"
#include "graph/control_flow.h"
#include "graph/graph.h"

namespace monograph {

struct ClassifiedNode : PlacedNode {
  const KernelRegistry::Entry* entry = nullptr;
  std::unique_ptr<Kernel> kernel;
  bool launched = false;  // synchronous or joint: it goes into a segment
  bool direct = false;    // a collective from GPU to GPU
  int64_t place = -1;     // of a joint one
  DeviceMerge merge;      // for a direct reduction
};

// The task's first CPU; without a type if it has none.
DeviceName FirstCpu(const PlanOptions& options);

// The nodes of `graph`, by id: the GPU of each, if any, and its kernel there. Kernels are made
// here, since only a kernel tells whether it is asynchronous, and so whether its node can be part
// of a segment. `linked_sends`: by node, the _Send that a _Recv gets its tensor from, or -1. `flow`
// is empty where there is no control flow. Logs, once for each list of members, which way
// collectives go. Errors name the node: no kernel for it, or one that refuses it.
Result<std::vector<ClassifiedNode>> Classify(const Graph& graph, const PlanOptions& options,
                                             const std::vector<NodeId>& linked_sends,
                                             const ControlFlow& flow);

}  // namespace monograph
