// Graphs in files: binary (.pb), text (.pbtxt), and, to be looked at, Graphviz (.dot).
#pragma once

#include <string>

#include "graph/graph_def.h"

namespace google::protobuf {
class Message;
}

namespace monograph {

// By the file's ending: .pb, .pbtxt. Errors name the path (and line, for text).
Result<Graph> ReadGraph(const std::string& path, const OpRegistry* registry);
Status WriteGraph(const Graph& graph, const std::string& path);  // also .dot

// A GraphDef before it becomes a Graph.
Status ReadGraphDef(const std::string& path, GraphDef* def);
// A message from the text of a .pbtxt; fields that it does not have are passed over. `source` names
// the text in errors.
Status ParseMessageText(const std::string& text, const std::string& source,
                        google::protobuf::Message* message);

}  // namespace monograph
