#include "graph/dot.h"

#include <map>

namespace monograph {
namespace {

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string NodeLine(const Graph& graph, NodeId id) {
  return "n" + std::to_string(id) + " [label=\"" + Escaped(graph.name(id)) + "\\n" +
         Escaped(graph.op(id).name()) + "\"];\n";
}

}  // namespace

std::string GraphToDot(const Graph& graph) {
  std::string text =
      "digraph monograph {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\", "
      "fontsize=10];\n"
      "  edge [fontname=\"sans-serif\", fontsize=8];\n";
  // A box per device that is asked for or assigned.
  std::map<std::string, std::vector<NodeId>> devices;
  for (NodeId id = 0; id < graph.num_nodes(); ++id)
    devices[graph.device(id).ToString()].push_back(id);
  int cluster = 0;
  for (const auto& [device, nodes] : devices) {
    if (!device.empty()) {
      text += "  subgraph cluster_" + std::to_string(cluster++) + " {\n    label=\"" +
              Escaped(device) + "\";\n";
    }
    for (NodeId id : nodes) text += (device.empty() ? "  " : "    ") + NodeLine(graph, id);
    if (!device.empty()) text += "  }\n";
  }
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    const std::string target = " -> n" + std::to_string(id);
    for (const Endpoint input : graph.inputs(id)) {
      text += "  n" + std::to_string(input.node) + target + " [label=\"";
      // A fed node may have lost what it knew.
      const bool known = input.index < graph.num_outputs(input.node);
      if (known)
        text += std::string(DTypeName(graph.dtype(input))) + Escaped(graph.shape(input).ToString());
      text += "\"];\n";
    }
    for (NodeId control : graph.control_inputs(id))
      text += "  n" + std::to_string(control) + target + " [style=dashed];\n";
  }
  return text + "}\n";
}

}  // namespace monograph
