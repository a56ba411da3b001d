#include "executor/plan/task_kernels.h"

#include "executor/collective/collective.h"
#include "executor/node_construction.h"

namespace monograph {
namespace {

class TaskNodeConstruction : public NodeConstruction, public CollectiveConstruction {
 public:
  TaskNodeConstruction(const Graph& graph, NodeId node, std::string_view device,
                       const CollectiveHome* collectives)
      : NodeConstruction(graph, node, device), collectives_(collectives) {}
  const CollectiveHome* collectives() const override { return collectives_; }

 private:
  const CollectiveHome* const collectives_;
};

}  // namespace

Result<const KernelRegistry::Entry*> FindTaskKernel(const Graph& graph, NodeId node,
                                                    DeviceType device_type,
                                                    const PlanOptions& options) {
  const std::string& op = graph.op(node).name();
  const KernelRegistry* gpu = options.gpu_kernels;
  const bool there = gpu != nullptr && gpu->HasOp(op, device_type);
  return (there ? gpu : options.kernels)->Find(op, device_type, graph.attrs(node));
}

Result<std::unique_ptr<Kernel>> MakeTaskKernel(const Graph& graph, NodeId node,
                                               std::string_view device, const PlanOptions& options,
                                               const KernelRegistry::Entry& entry) {
  return entry.factory(TaskNodeConstruction(graph, node, device, options.collectives));
}

}  // namespace monograph
