// A shape seen around one axis.
#pragma once

#include "base/shape.h"

namespace monograph::ops::reduce {

// [outer, n, inner] around an axis.
struct Around {
  int64_t outer = 1, n = 1, inner = 1;
  Around(const Shape& shape, int axis) : n(shape.dim(axis)) {
    for (int i = 0; i < axis; ++i) outer *= shape.dim(i);
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape.dim(i);
  }
};

}  // namespace monograph::ops::reduce
