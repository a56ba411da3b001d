// Graphs as TensorFlow's GraphDef, as a message or serialised. In files: graph/graph_file.h; single
// attributes and tensors: graph/attr_proto.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace monograph {

namespace pb {  // graph/graph.proto
class GraphDef;
class NodeDef;
}  // namespace pb
using pb::GraphDef;
using pb::NodeDef;

struct ImportOptions {
  // Keep nodes whose op the registry lacks (a step that needs one fails); otherwise Unimplemented
  // at once.
  bool keep_unknown_ops = true;
  // Keep colocations (`_class`) with nodes that are not in the graph, as in a part of a program's
  // graph; otherwise InvalidArgument. Bodies of functions keep theirs in any case.
  bool keep_lost_colocations = false;
  // A few bytes of a tensor may stand for many equal elements. What all of a graph's may ask for.
  uint64_t most_expanded_bytes = uint64_t{2} << 30;
};

// InvalidArgument names the node. Attributes that an OpDef does not declare are dropped if they
// begin with '_' and mean nothing here, or are newer than our definition; `_class` (colocation),
// `_replica`, `_output_shapes` of arguments and all that begins with "_mg_" are kept. Nodes may
// come in any order; the control inputs of each come last. A node whose op is the name of a
// function of the library becomes a call of it. In a GraphDef of producer version 21 or older a
// Placeholder that says it is a scalar is of unknown rank, as in TensorFlow.
Result<Graph> GraphFromDef(const GraphDef& def, const OpRegistry* registry,
                           const ImportOptions& options = {});
// `graph` with the nodes of `def` added, whose inputs may be nodes of `graph`; as above else. Nodes
// that were there keep their ids. A function whose name `graph` knows is not read again.
Result<Graph> ExtendGraph(const Graph& graph, const GraphDef& def,
                          const ImportOptions& options = {});
void GraphToDef(const Graph& graph, GraphDef* def);

// Serialised forms, for callers that need not see protobuf.
Result<Graph> ParseGraph(std::string_view bytes, const OpRegistry* registry,
                         const ImportOptions& options = {});
Result<Graph> ExtendGraph(const Graph& graph, std::string_view bytes,
                          const ImportOptions& options = {});
std::string SerializeGraph(const Graph& graph);

}  // namespace monograph
