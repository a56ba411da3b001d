// The kernels of a task's nodes: which kernel a node has on a device of its task, and the kernel
// itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "executor/kernel.h"
#include "executor/plan/plan.h"
#include "graph/graph.h"

namespace monograph {

Result<const KernelRegistry::Entry*> FindTaskKernel(const Graph& graph, NodeId node,
                                                    DeviceType device_type,
                                                    const PlanOptions& options);
Result<std::unique_ptr<Kernel>> MakeTaskKernel(const Graph& graph, NodeId node,
                                               std::string_view device, const PlanOptions& options,
                                               const KernelRegistry::Entry& entry);

}  // namespace monograph
