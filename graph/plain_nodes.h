// Reads the nodes of a serialised GraphDef straight from its bytes, as they come from
// SerializeGraph: many times faster than by way of messages.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace monograph {

// A GraphDef's top-level fields. Nothing if the bytes are not such fields.
struct GraphDefFields {
  std::vector<std::string_view> nodes;
  std::string_view library;  // empty: none
  int producer = 0;          // version of the program that made it
};
std::optional<GraphDefFields> SplitGraphDef(std::string_view bytes);

// Adds the nodes to the graph. False if one is not plain: malformed, refused by the graph, of an op
// that the registry lacks, or before one that it reads. The graph is then half filled, and
// GraphFromDef, which sorts nodes and names mistakes, must read the bytes instead.
// `expandable`: graph/attr_proto.h.
bool AddPlainNodes(const std::vector<std::string_view>& nodes, uint64_t expandable, Graph* graph);

// True for an attribute that nodes keep though their op does not declare it.
bool IsKeptAttr(std::string_view name);
// InvalidArgument for a value that makes no sense: `_class` is a list of texts.
Status CheckKeptAttr(std::string_view name, const AttrValue& value);
// Attributes that a GraphDef leaves out have their defaults, also where the inputs are of another
// type, as in TensorFlow.
void SetDefaults(const OpDef& op, Attrs* attrs);

}  // namespace monograph
