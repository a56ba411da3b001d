// Graphs as TensorFlow's GraphDef: binary (.pb), text (.pbtxt), and Graphviz (.dot).
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace monograph {

class GraphDef;     // graph/graph.proto
class TensorProto;

struct ImportOptions {
  // Keep nodes whose op the registry lacks (a step that needs one fails); otherwise Unimplemented at once.
  bool keep_unknown_ops = true;
};

// InvalidArgument names the node. Attributes that an OpDef does not declare are dropped if they begin with '_' and mean nothing here, or are
// newer than our definition; `_class` (colocation) is kept.
Result<Graph> GraphFromDef(const GraphDef& def, const OpRegistry* registry, const ImportOptions& options = {});
void GraphToDef(const Graph& graph, GraphDef* def);

// Serialised forms, for callers that need not see protobuf.
Result<Graph> ParseGraph(std::string_view bytes, const OpRegistry* registry, const ImportOptions& options = {});
std::string SerializeGraph(const Graph& graph);

// By the file's ending: .pb, .pbtxt. Errors name the path (and line, for text).
Result<Graph> ReadGraph(const std::string& path, const OpRegistry* registry);
Status WriteGraph(const Graph& graph, const std::string& path);  // also .dot
std::string GraphToDot(const Graph& graph);

Result<Tensor> TensorFromProto(const TensorProto& proto);
void TensorToProto(const Tensor& tensor, TensorProto* proto);

}  // namespace monograph
