// Placement: gives every node a device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace monograph {

struct DeviceInfo {
  DeviceName name;               // full
  std::string description = {};  // "NVIDIA H200, 139 GiB"; empty for CPUs
  int64_t memory_limit = 0;
  uint64_t incarnation = 0;  // changes when the task restarts
  // How other GPUs reach this one without the host, and the card that it is on, as
  // "NCCL 2.28.9/card"; empty: not at all. Devices with the same part before the '/' reach each
  // other if they are on different cards.
  std::string link = {};
};

struct PlaceOptions {
  bool allow_soft_placement = false;
  // The job that is preferred for nodes without a requested job. Empty: TensorFlow's rule, the
  // device type of the highest priority and then the first name among `devices`; the client's own
  // devices come last.
  std::string default_job = {};
  // Whether a device type has a kernel for a node. Empty: every type has.
  std::function<bool(const Graph& graph, NodeId node, const std::string& device_type)> has_kernel =
      {};
};

// A placement that differs from what was requested, for the log.
struct PlacementNote {
  NodeId node;
  std::string text;
};

// Sets the device of every node to a full name. Rules: requested devices; colocation groups
// (`_class`, resource edges) by union-find; kernels; soft placement (type and id only, never the
// task); generators with their only consumer; Shape, Size, Rank with their input. InvalidArgument
// "Cannot assign a device for operation N: ..." names the whole group, who asked for what, and what
// would fix it.
Status Place(Graph* graph, const std::vector<DeviceInfo>& devices, const PlaceOptions& options,
             std::vector<PlacementNote>* notes);

// True if the function that `call` calls cannot run as one node on one task: its body, completed
// from the call's requested device, names another task or two of them, or a resource argument lives
// on another device than the call requests. Such calls are inlined before placing. Place itself
// puts a call on one device as a whole and leaves the devices that its body requests, which are
// relative to the call, to the task.
bool SpansTasks(const Graph& graph, NodeId call);
// All calls of `graph` for which SpansTasks holds, by id; looks at each function once.
std::vector<NodeId> CallsThatSpanTasks(const Graph& graph);

enum class PlacementLog { kNone, kFull, kSummary, kJson, kDot };
// "full", "summary", "json", "dot", "" / "none", "true" (full), "false".
Result<PlacementLog> ParsePlacementLog(std::string_view text);

// The text of `log_device_placement` for a placed graph. kFull: a line "name: (Op): /job:..." for
// every node in order of ids, with function calls expanded as "<call>/<node>". kSummary: per device
// op counts and bytes of variables, tensors that change device, and the notes. kJson:
// {"nodes": [{"name", "op", "device"}], "notes": [{"name", "text"}]}, expanded as kFull. kDot:
// Graphviz, a cluster per device, a call as one box.
std::string FormatPlacement(const Graph& graph, PlacementLog log,
                            const std::vector<PlacementNote>& notes);

}  // namespace monograph
