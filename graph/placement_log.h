// The text of `log_device_placement`: where each node of a placed graph is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// A placement that differs from what was requested, for the log.
struct PlacementNote {
  NodeId node;
  std::string text;
};

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
