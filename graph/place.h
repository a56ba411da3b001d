// Placement: gives every node a device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/device_info.h"
#include "graph/graph.h"

namespace monograph {

struct PlacementNote;  // graph/placement_log.h

struct PlaceOptions {
  bool allow_soft_placement = false;
  // Whether a device type has a kernel for a node. Empty: every type has.
  std::function<bool(const Graph& graph, NodeId node, DeviceType type)> has_kernel = {};
  // Why a node lacks a kernel on some type of device, where that is not plain; else "". Empty: it
  // is always plain.
  std::function<std::string(const Graph& graph, NodeId node)> kernel_remark = {};
};

// Sets the device of every node to a full name. Rules, as TensorFlow's: the type of the highest
// priority (base/device_type.h), then the first name, the client's own devices last; requested
// devices; colocation groups
// (`_class`, resource edges) by union-find; kernels; soft placement (type and id only, never the
// task); generators with their only consumer; Shape, Size, Rank with their input. InvalidArgument
// "Cannot assign a device for operation N: ..." names the whole group, who asked for what, and what
// would fix it.
Status Place(Graph* graph, const std::vector<DeviceInfo>& devices, const PlaceOptions& options,
             std::vector<PlacementNote>* notes);

// The calls whose function cannot run as one node on one task, by id: its body, completed from the
// call's requested device, names another task or two of them, or a resource argument lives on
// another device than the call requests. Such calls are inlined before placing. Place itself puts a
// call on one device as a whole and leaves the devices that its body requests, which are relative
// to the call, to the task. Looks at each function once.
std::vector<NodeId> CallsThatSpanTasks(const Graph& graph);

}  // namespace monograph
