// What the graph knows of the variable, or of the elements of the array, behind a resource tensor:
// from its VarHandleOp or TensorArrayV3, or from the attributes `_handle_shapes` and
// `_handle_dtypes` of an argument; also through Identity and Enter.
#pragma once

#include "graph/graph.h"

namespace monograph {

// The attributes of the node that tells about the handle; nullptr if it is no handle.
const Attrs* HandleAttrs(const Graph& graph, Endpoint handle);
// Of unknown rank where nothing is known.
PartialShape HandleShape(const Graph& graph, Endpoint handle);
// DT_INVALID where nothing is known.
DType HandleDType(const Graph& graph, Endpoint handle);

}  // namespace monograph
