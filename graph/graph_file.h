// A GraphDef in a file, before it becomes a Graph.
#pragma once

#include <string>

#include "graph/graph_def.h"

namespace monograph {

// By the file's ending: .pb, .pbtxt. Errors name the path (and line, for text).
Status ReadGraphDef(const std::string& path, GraphDef* def);

}  // namespace monograph
