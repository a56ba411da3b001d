#include "executor/plan/task_kernels.h"

#include "executor/borrowed.h"
#include "executor/collective/collective.h"
#include "executor/node_construction.h"
#include "executor/random_streams.h"
#include "executor/session_tensors.h"
#include "graph/op_source.h"

namespace monograph {
namespace {

class TaskNodeConstruction : public NodeConstruction,
                             public CollectiveConstruction,
                             public FunctionsConstruction,
                             public RandomStreamsConstruction,
                             public SessionTensorsConstruction {
 public:
  TaskNodeConstruction(const Graph& graph, NodeId node, std::string_view device,
                       const PlanOptions& options)
      : NodeConstruction(graph, node, device), options_(options), graph_(graph) {}
  const CollectiveHome* collectives() const override { return options_.collectives; }
  const FunctionLibrary& functions() const override { return graph_.functions(); }
  RandomStreams* random_streams() const override { return options_.random_streams; }
  std::shared_ptr<SessionTensors> session_tensors() const override {
    return options_.session_tensors;
  }

 private:
  const PlanOptions& options_;
  const Graph& graph_;
};

}  // namespace

Result<const KernelRegistry::Entry*> FindTaskKernel(const Graph& graph, NodeId node,
                                                    DeviceType device_type,
                                                    const PlanOptions& options) {
  const std::string& op = graph.op(node).name();
  if (device_type != kCpu && options.random_streams != nullptr && HasSeeds(graph.attrs(node)))
    return Unimplemented(std::string(kStreamsNeedCpus));
  // The graph took TensorFlow's op where ours of that name refuses an attribute, which kernels of
  // ours would not look at.
  if (device_type == kCpu && IsBorrowed(graph.op(node)) && BorrowedKernel() != nullptr)
    return BorrowedKernel();
  const KernelRegistry* gpu = options.gpu_kernels;
  const bool there = gpu != nullptr && gpu->HasOp(op, device_type);
  Result<const KernelRegistry::Entry*> found =
      (there ? gpu : options.kernels)->Find(op, device_type, graph.attrs(node));
  if (found.ok() || device_type != kCpu) return found;
  if (FindBorrowed(op) != nullptr) return BorrowedKernel();
  return found.status().WithMessage(found.status().message() + BorrowingRemedy(op));
}

Result<std::unique_ptr<Kernel>> MakeTaskKernel(const Graph& graph, NodeId node,
                                               std::string_view device, const PlanOptions& options,
                                               const KernelRegistry::Entry& entry) {
  return entry.factory(TaskNodeConstruction(graph, node, device, options));
}

}  // namespace monograph
