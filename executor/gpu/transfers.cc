#include "executor/gpu/transfers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "executor/gpu/copies.h"
#include "executor/plan/task_graph.h"
#include "graph/structural_ops.h"

namespace monograph {

Result<GpuEdges> FindGpuEdges(LoweredGraph* lowered, const PlanOptions& options) {
  GpuEdges found;
  if (!options.takes_gpu_memory) return found;
  const Graph& graph = lowered->graph;
  MG_ASSIGN_OR_RETURN(const std::vector<NodeId> linked_sends, LinkedSends(graph));
  std::vector<bool> linked(linked_sends.size(), false);  // both halves are in this plan
  for (size_t recv = 0; recv < linked_sends.size(); ++recv) {
    if (linked_sends[recv] < 0) continue;
    linked[recv] = true;
    linked[static_cast<size_t>(linked_sends[recv])] = true;
  }
  std::vector<std::vector<NodeId>> readers(linked_sends.size());
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    for (const Endpoint& from : graph.inputs(id))
      readers[static_cast<size_t>(from.node)].push_back(id);
  }
  const auto meets = [&](NodeId id, const char* device) {
    return !linked[static_cast<size_t>(id)] &&
           options.takes_gpu_memory(graph.attrs(id).GetOr<std::string>(device, ""));
  };
  const auto leaves = [&](NodeId id) { return IsSend(graph, id) && meets(id, "recv_device"); };
  for (NodeId copy = 0; copy < graph.num_nodes(); ++copy) {
    if (!graph.is(copy, kGpuCopyOp)) continue;
    const auto gpu = std::find_if(
        options.devices.begin(), options.devices.end(),
        [&](const Device* device) { return device->info().name == graph.device(copy); });
    const std::vector<NodeId>& to = readers[static_cast<size_t>(copy)];
    if (!to.empty() && std::all_of(to.begin(), to.end(), leaves)) {
      LeaveOnDevice(lowered->kernels.at(copy).get());
      for (const NodeId send : to) found[send] = *gpu;
    }
    const NodeId from = graph.inputs(copy)[0].node;
    if (IsRecv(graph, from) && meets(from, "send_device") &&
        readers[static_cast<size_t>(from)].size() == 1) {
      ArriveOnDevice(lowered->kernels.at(copy).get());
      found[from] = *gpu;
    }
  }
  return found;
}

}  // namespace monograph
