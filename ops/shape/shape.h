// Ops about shapes: Shape, ShapeN, Size, Rank, Reshape, ExpandDims, Squeeze, BroadcastTo,
// BroadcastArgs, BroadcastGradientArgs. The ops that only relabel (Reshape, ExpandDims, Squeeze)
// share the input's memory.
#pragma once

#include <utility>

#include "graph/scope.h"

namespace monograph {

// The shape as a vector of `out_type` (int32 or int64).
Output ShapeOf(const Scope& scope, const Output& input, DType out_type = DT_INT32);
Outputs ShapeN(const Scope& scope, const Outputs& inputs, DType out_type = DT_INT32);
// The number of elements, a scalar.
Output Size(const Scope& scope, const Output& input, DType out_type = DT_INT32);
Output Rank(const Scope& scope, const Output& input);

// The same elements under `shape`, of which one dimension may be -1: what is left.
Output Reshape(const Scope& scope, const Output& tensor, const Output& shape);
Output Reshape(const Scope& scope, const Output& tensor, std::initializer_list<int64_t> shape);
// A dimension of 1 put before dimension `axis` (in [-rank-1, rank]).
Output ExpandDims(const Scope& scope, const Output& input, int axis);
Output ExpandDims(const Scope& scope, const Output& input, const Output& axis);
// Takes out the dimensions `axes`, which must be 1; with none given, all that are 1.
Output Squeeze(const Scope& scope, const Output& input, const std::vector<int64_t>& axes = {});

Output BroadcastTo(const Scope& scope, const Output& input, const Output& shape);
// The shape to which shapes s0 and s1 (vectors) broadcast.
Output BroadcastArgs(const Scope& scope, const Output& s0, const Output& s1);
// The axes over which the gradients of operands of shapes s0 and s1 must be summed.
std::pair<Output, Output> BroadcastGradientArgs(const Scope& scope, const Output& s0,
                                                const Output& s1);

// Sums `gradient` (of the shape to which x was broadcast) to the shape of x: what the gradient of
// every broadcasting op ends with. Adds nothing where the shapes are known to be equal. `other` is
// the op's other operand.
Output SumToShapeOf(const Scope& scope, const Output& gradient, const Output& x,
                    const Output& other);

}  // namespace monograph
