// A shape seen around one axis, and what ArgMax and ArgMin ask of theirs.
#pragma once

#include <string>

#include "ops/cpu/kernel_util.h"

namespace monograph::ops::reduce {

// [outer, n, inner] around an axis.
struct Around {
  int64_t outer = 1, n = 1, inner = 1;
  Around(const Shape& shape, int axis) : n(shape.dim(axis)) {
    for (int i = 0; i < axis; ++i) outer *= shape.dim(i);
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape.dim(i);
  }
};

struct ArgPlan {
  Around around;
  Shape output;
};

inline Result<ArgPlan> PlanArg(const Shape& in, const Tensor& axis_tensor) {
  if (in.rank() == 0) return InvalidArgument("the input must have at least one dimension");
  MG_ASSIGN_OR_RETURN(const int axis, AxisOf(axis_tensor, in.rank()));
  if (in.dim(axis) == 0) {
    return InvalidArgument("Reduction axis " + std::to_string(axis) + " is empty in shape " +
                           in.ToString());
  }
  ArgPlan plan{Around(in, axis), {}};
  for (int i = 0; i < in.rank(); ++i) {
    if (i != axis) plan.output.AddDim(in.dim(i));
  }
  return plan;
}

}  // namespace monograph::ops::reduce
