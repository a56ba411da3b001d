#include "graph/place/body_devices.h"

#include <algorithm>

#include "graph/place/device_set.h"

namespace monograph::place {
bool BodyDevices::TaskOf(const Graph& graph, NodeId call, DeviceName* task) {
  const DeviceName& own = graph.device(call);
  *task = TaskPart(own);
  const Function* function = Callee(graph, call, library_);
  if (function == nullptr) return true;
  for (const DeviceName& requested : RequestedBy(*function, 0)) {
    Result<DeviceName> merged =
        MergeConstraints(*task, TaskPart(MergeScope(requested, own)), false);
    if (!merged.ok()) return false;
    *task = *merged;
  }
  return true;
}

bool BodyDevices::SpansTasks(const Graph& graph, NodeId call) {
  DeviceName task;
  if (!TaskOf(graph, call, &task)) return true;
  DeviceName whole = MergeScope(graph.device(call), task);
  for (const Endpoint& input : graph.inputs(call)) {
    if (graph.dtype(input) != DT_RESOURCE) continue;
    Result<DeviceName> merged = MergeConstraints(whole, graph.device(input.node), false);
    if (!merged.ok()) return true;
    whole = *merged;
  }
  return false;
}

const std::vector<DeviceName>& BodyDevices::RequestedBy(const Function& function, int depth) {
  const auto found = requested_.find(&function);
  if (found != requested_.end()) return found->second;
  std::vector<DeviceName> requested;
  const auto add = [&](const DeviceName& device) {
    if (!device.empty() &&
        std::find(requested.begin(), requested.end(), device) == requested.end()) {
      requested.push_back(device);
    }
  };
  const Graph& body = *function.body;
  std::vector<bool> used(body.devices().size());
  for (NodeId node = 0; node < body.num_nodes(); ++node) {
    used[static_cast<size_t>(body.device_index(node))] = true;
    if (depth >= kMaxCallDepth) continue;
    for (const Function* inner : FunctionsOf(body, node, library_)) {
      for (const DeviceName& device : RequestedBy(*inner, depth + 1))
        add(MergeScope(device, body.device(node)));
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) add(body.devices()[i]);
  }
  return requested_[&function] = std::move(requested);
}

}  // namespace monograph::place
