// The geometry of layer normalisation: what the kernels for every device check before they compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/kernel.h"

namespace monograph::ops::layer_norm {

struct Rows {
  int64_t rows = 0, width = 0;
  Shape of_rows;  // x's without its last dimension
};

// `x`: the input of that number; behind it scale and, forward, offset, else mean and inverse.
inline Result<Rows> RowsOf(const KernelContext& c, int x, bool backward) {
  const Shape shape = c.input(x).shape();
  if (shape.rank() < 1) return InvalidArgument("x needs at least one dimension, got a scalar");
  Rows r{.rows = 1, .width = shape[shape.rank() - 1]};
  std::vector<int64_t> dims;
  for (int i = 0; i + 1 < shape.rank(); ++i) {
    dims.push_back(shape[i]);
    r.rows *= shape[i];
  }
  r.of_rows = Shape(dims);
  const Shape vector{r.width};
  const bool fits = backward ? c.input(0).shape() == shape && c.input(x + 2).shape() == r.of_rows &&
                                   c.input(x + 3).shape() == r.of_rows
                             : c.input(x + 2).shape() == vector;
  if (c.input(x + 1).shape() == vector && fits) return r;
  std::string text = "x " + shape.ToString();
  const auto add = [&](const char* name, int input) {
    text += std::string(", ") + name + " " + c.input(input).shape().ToString();
  };
  if (backward) add("gradient", 0);
  add("scale", x + 1);
  add(backward ? "mean" : "offset", x + 2);
  if (backward) add("inverse", x + 3);
  return InvalidArgument(text + " do not fit together");
}

}  // namespace monograph::ops::layer_norm
