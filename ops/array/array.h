// Small ops on whole tensors: LinSpace, Empty, Bitcast, EnsureShape, Snapshot,
// UnravelIndex.
#pragma once

#include "graph/scope.h"

namespace monograph {

// `num` values from `start` to `stop`, both of them among these.
Output LinSpace(const Scope& scope, const Output& start, const Output& stop, const Output& num);
// The same bytes as elements of another type; where sizes differ, a last dimension is added or
// removed.
Output Bitcast(const Scope& scope, const Output& input, DType type);
// The input; the step fails if it has another shape.
Output EnsureShape(const Scope& scope, const Output& input, const PartialShape& shape);

}  // namespace monograph
