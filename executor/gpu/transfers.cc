#include "executor/gpu/transfers.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "executor/gpu/copies.h"
#include "executor/plan/task_graph.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"

namespace monograph {

Result<GpuEdges> FindGpuEdges(LoweredGraph* lowered, const PlanOptions& options) {
  GpuEdges found;
  if (!options.takes_gpu_memory && !options.takes_parts) return found;
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
  ControlFlow flow;
  if (HasControlFlow(graph)) {
    MG_ASSIGN_OR_RETURN(flow, FindControlFlow(graph));
  }
  using Predicate = std::function<bool(const std::string&)>;
  const auto meets = [&](NodeId id, const char* device, const Predicate& takes) {
    return takes && !linked[static_cast<size_t>(id)] &&
           takes(graph.attrs(id).GetOr<std::string>(device, ""));
  };
  const auto leaves = [&](NodeId id) {
    return IsSend(graph, id) && meets(id, "recv_device", options.takes_gpu_memory);
  };
  // A part names no iteration of a loop.
  const auto leaves_in_parts = [&](NodeId id) {
    return IsSend(graph, id) && meets(id, "recv_device", options.takes_parts) &&
           (flow.frame.empty() || flow.frame[static_cast<size_t>(id)] == 0);
  };
  for (NodeId copy = 0; copy < graph.num_nodes(); ++copy) {
    if (!graph.is(copy, kGpuCopyOp)) continue;
    const auto gpu = std::find_if(
        options.devices.begin(), options.devices.end(),
        [&](const Device* device) { return device->info().name == graph.device(copy); });
    const std::vector<NodeId>& to = readers[static_cast<size_t>(copy)];
    if (!to.empty() && std::all_of(to.begin(), to.end(), leaves)) {
      LeaveOnDevice(lowered->kernels.at(copy).get());
      for (const NodeId send : to) found[send].gpu = *gpu;
    } else {
      std::vector<int32_t> edges;
      for (const NodeId send : to) {
        if (!leaves_in_parts(send)) continue;
        found[send].in_parts = true;
        edges.push_back(static_cast<int32_t>(graph.attrs(send).Get<int64_t>("edge_id")));
      }
      if (!edges.empty())
        LeaveInParts(lowered->kernels.at(copy).get(), std::move(edges), options.send_part);
    }
    const NodeId from = graph.inputs(copy)[0].node;
    if (IsRecv(graph, from) &&
        (meets(from, "send_device", options.takes_gpu_memory) ||
         meets(from, "send_device", options.takes_parts)) &&
        readers[static_cast<size_t>(from)].size() == 1) {
      ArriveOnDevice(lowered->kernels.at(copy).get());
      found[from].gpu = *gpu;
    }
  }
  return found;
}

}  // namespace monograph
