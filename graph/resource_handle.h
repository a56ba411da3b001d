// What the graph knows of the variable, of the elements of the array or of the values of the table
// behind a handle: from its VarHandleOp, TensorArrayV3 or table's node, or from the attributes
// `_handle_shapes` and `_handle_dtypes` of an argument; also through Identity and Enter.
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace monograph {

// The attributes of the node that tells about the handle; nullptr if it is no handle.
const Attrs* HandleAttrs(const Graph& graph, Endpoint handle);
// Of unknown rank where nothing is known.
PartialShape HandleShape(const Graph& graph, Endpoint handle);
// DT_INVALID where nothing is known.
DType HandleDType(const Graph& graph, Endpoint handle);
// The op of the node that tells it; "" if none is found.
std::string_view HandleOp(const Graph& graph, Endpoint handle);

}  // namespace monograph
