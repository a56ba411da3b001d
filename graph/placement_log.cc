// Placement as text: every node in TensorFlow's form, a summary by device, JSON, or a drawing for
// Graphviz. The first three walk the placed graph into the bodies of calls (ExpandAll), since these
// are what tasks run; the drawing shows a call as one node.
#include "graph/placement_log.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "base/byte_size.h"
#include "base/json.h"
#include "graph/function.h"
#include "graph/op_source.h"

namespace monograph {
namespace {

constexpr size_t kTopOps = 6;
constexpr size_t kTopRoutes = 32;

// Calls visit(prefix, graph, node, device text) for every node of `graph`, going into calls instead
// of stopping at them.
template <typename Visit>
void Expand(const Graph& graph, const FunctionLibrary& library, const DeviceName& outer,
            std::string* prefix, int depth, const Visit& visit) {
  std::vector<std::string> devices(graph.devices().size());
  for (NodeId node = 0; node < graph.num_nodes(); ++node) {
    if (depth > 0 && (graph.is(node, "_Arg") || graph.is(node, "_Retval"))) continue;
    const Function* function = depth < kMaxCallDepth ? Callee(graph, node, library) : nullptr;
    if (function != nullptr) {
      const size_t length = prefix->size();
      prefix->append(graph.name(node)).append("/");
      Expand(*function->body, library, MergeScope(graph.device(node), outer), prefix, depth + 1,
             visit);
      prefix->resize(length);
      continue;
    }
    std::string& device = devices[static_cast<size_t>(graph.device_index(node))];
    if (device.empty()) device = MergeScope(graph.device(node), outer).ToString();
    visit(*prefix, graph, node, device);
  }
}

template <typename Visit>
void ExpandAll(const Graph& graph, const Visit& visit) {
  std::string prefix;
  Expand(graph, graph.functions(), DeviceName(), &prefix, 0, visit);
}

std::string Count(int64_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

std::string Full(const Graph& graph) {
  std::string text;
  text.reserve(static_cast<size_t>(graph.num_nodes()) * 96);
  ExpandAll(graph, [&](const std::string& prefix, const Graph& g, NodeId node,
                       const std::string& device) {
    text.append(prefix).append(g.name(node)).append(": (").append(g.op(node).name()).append("): ");
    text.append(device).append(IsBorrowed(g.op(node)) ? " (borrowed)\n" : "\n");
  });
  return text;
}

std::string Summary(const Graph& graph, const std::vector<PlacementNote>& notes) {
  struct Device {
    std::map<const OpDef*, int64_t> ops;
    int64_t count = 0, variables = 0, variable_bytes = 0, unknown_variables = 0;
  };
  std::map<std::string, Device, std::less<>> devices;
  int64_t total = 0;
  ExpandAll(graph, [&](const std::string&, const Graph& g, NodeId node, const std::string& name) {
    Device& device = devices[name];
    ++total;
    ++device.count;
    ++device.ops[&g.op(node)];
    if (!g.is(node, "VarHandleOp")) return;
    ++device.variables;
    const PartialShape shape = g.attrs(node).GetOr<PartialShape>("shape", PartialShape());
    const int64_t elements = shape.elements();
    const DType dtype = g.attrs(node).GetOr<DType>("dtype", DT_INVALID);
    if (elements < 0) {
      ++device.unknown_variables;
    } else {
      device.variable_bytes += elements * static_cast<int64_t>(DTypeSize(dtype));
    }
  });
  std::string text = "Placement of " + Count(total, "operation", "operations") + " on " +
                     Count(static_cast<int64_t>(devices.size()), "device", "devices") + ":\n";
  for (const auto& [name, device] : devices) {
    std::vector<std::pair<int64_t, std::string>> ops;
    for (const auto& [op, count] : device.ops)
      ops.emplace_back(-count, op->name() + (IsBorrowed(*op) ? " (borrowed)" : ""));
    std::sort(ops.begin(), ops.end());
    text += name + ": " + Count(device.count, "operation", "operations") + " (";
    for (size_t i = 0; i < ops.size() && i < kTopOps; ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(-ops[i].first) + " " + ops[i].second;
    }
    if (ops.size() > kTopOps) {
      text += ", " + Count(static_cast<int64_t>(ops.size() - kTopOps), "more type", "more types");
    }
    text += ")";
    if (device.variables > 0) {
      text += ", " + Count(device.variables, "variable", "variables") + " of " +
              BytesText(device.variable_bytes);
      if (device.unknown_variables > 0) {
        text += " (" + std::to_string(device.unknown_variables) + " of unknown shape not counted)";
      }
    }
    text += "\n";
  }

  // What moves: one tensor to one device counts once, however many read it there.
  struct Route {
    int64_t tensors = 0, bytes = 0, unknown = 0;
  };
  std::map<std::pair<DeviceIndex, DeviceIndex>, Route> routes;
  std::set<std::tuple<Endpoint, DeviceIndex>> seen;
  for (NodeId node = 0; node < graph.num_nodes(); ++node) {
    const DeviceIndex to = graph.device_index(node);
    for (const Endpoint& input : graph.inputs(node)) {
      const DeviceIndex from = graph.device_index(input.node);
      if (from == to || !seen.emplace(input, to).second) continue;
      Route& route = routes[{from, to}];
      ++route.tensors;
      const int64_t elements = graph.shape(input).elements();
      if (elements < 0) {
        ++route.unknown;
      } else {
        route.bytes += elements * static_cast<int64_t>(DTypeSize(graph.dtype(input)));
      }
    }
  }
  if (!routes.empty()) {
    std::vector<std::string> lines;
    for (const auto& [ends, route] : routes) {
      const auto& [from, to] = ends;
      std::string line = "  " + graph.devices()[static_cast<size_t>(from)].ToString() + " -> " +
                         graph.devices()[static_cast<size_t>(to)].ToString() + ": " +
                         Count(route.tensors, "tensor", "tensors") + ", " + BytesText(route.bytes);
      if (route.unknown > 0) line += " and " + std::to_string(route.unknown) + " of unknown size";
      lines.push_back(std::move(line));
    }
    std::sort(lines.begin(), lines.end());
    text += "Tensors that change device:\n";
    for (size_t i = 0; i < lines.size() && i < kTopRoutes; ++i) text += lines[i] + "\n";
    if (lines.size() > kTopRoutes)
      text += "  ... " + std::to_string(lines.size() - kTopRoutes) + " more\n";
  }
  if (!notes.empty()) text += "Notes:\n";
  for (const PlacementNote& note : notes) text += "  " + note.text + "\n";
  return text;
}

std::string Json(const Graph& graph, const std::vector<PlacementNote>& notes) {
  std::string text = "{\"nodes\": [";
  const char* separator = "\n";
  std::string name;
  ExpandAll(graph,
            [&](const std::string& prefix, const Graph& g, NodeId node, const std::string& device) {
              name.assign(prefix).append(g.name(node));
              text.append(separator).append("  {\"name\": ").append(JsonQuoted(name));
              text.append(", \"op\": ").append(JsonQuoted(g.op(node).name()));
              text.append(", \"device\": ").append(JsonQuoted(device));
              text.append(IsBorrowed(g.op(node)) ? ", \"borrowed\": true}" : "}");
              separator = ",\n";
            });
  text += "\n], \"notes\": [";
  separator = "\n";
  for (const PlacementNote& note : notes) {
    text.append(separator).append("  {\"name\": ").append(JsonQuoted(graph.name(note.node)));
    text.append(", \"text\": ").append(JsonQuoted(note.text)).append("}");
    separator = ",\n";
  }
  return text + "\n]}\n";
}

void AppendDotString(std::string_view value, std::string* text) {
  text->push_back('"');
  for (char c : value) {
    if (c == '"' || c == '\\') text->push_back('\\');
    text->push_back(c);
  }
  text->push_back('"');
}

std::string Dot(const Graph& graph) {
  std::map<std::string, std::vector<NodeId>> by_device;
  for (NodeId node = 0; node < graph.num_nodes(); ++node)
    by_device[graph.device(node).ToString()].push_back(node);
  std::string text = "digraph placement {\n  rankdir=LR;\n  node [shape=box];\n";
  int cluster = 0;
  for (const auto& [device, nodes] : by_device) {
    text += "  subgraph cluster_" + std::to_string(cluster++) + " {\n    label=";
    AppendDotString(device, &text);
    text += ";\n";
    for (NodeId node : nodes) {
      text += "    n" + std::to_string(node) + " [label=";
      AppendDotString(std::string(graph.name(node)) + "\n(" + graph.op(node).name() +
                          (IsBorrowed(graph.op(node)) ? ", borrowed)" : ")"),
                      &text);
      text += "];\n";
    }
    text += "  }\n";
  }
  for (NodeId node = 0; node < graph.num_nodes(); ++node) {
    for (const Endpoint& input : graph.inputs(node)) {
      text += "  n" + std::to_string(input.node) + " -> n" + std::to_string(node);
      if (graph.device_index(input.node) != graph.device_index(node)) text += " [color=red]";
      text += ";\n";
    }
    for (NodeId source : graph.control_inputs(node)) {
      text +=
          "  n" + std::to_string(source) + " -> n" + std::to_string(node) + " [style=dashed];\n";
    }
  }
  return text + "}\n";
}

}  // namespace

Result<PlacementLog> ParsePlacementLog(std::string_view text) {
  if (text.empty() || text == "none" || text == "false") return PlacementLog::kNone;
  if (text == "full" || text == "true") return PlacementLog::kFull;
  if (text == "summary") return PlacementLog::kSummary;
  if (text == "json") return PlacementLog::kJson;
  if (text == "dot") return PlacementLog::kDot;
  return InvalidArgument("log_device_placement '" + std::string(text) +
                         "' is none of: full, summary, json, dot, none, true, false");
}

std::string FormatPlacement(const Graph& graph, PlacementLog log,
                            const std::vector<PlacementNote>& notes) {
  switch (log) {
    case PlacementLog::kNone:
      return std::string();
    case PlacementLog::kFull:
      return Full(graph);
    case PlacementLog::kSummary:
      return Summary(graph, notes);
    case PlacementLog::kJson:
      return Json(graph, notes);
    case PlacementLog::kDot:
      return Dot(graph);
  }
  return std::string();
}

}  // namespace monograph
