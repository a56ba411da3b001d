// What an update of rows asks of shapes.
#pragma once

#include "base/tensor.h"

namespace monograph::ops::sparse_training {

inline Status CheckRows(const Shape& variable, const Tensor& rows, const Tensor& indices) {
  Shape wanted{indices.elements()};
  for (int i = 1; i < variable.rank(); ++i) wanted.AddDim(variable.dim(i));
  if (variable.rank() > 0 && indices.shape().rank() == 1 && rows.shape() == wanted) return Status();
  return InvalidArgument("rows of shape " + rows.shape().ToString() + " at indices of shape " +
                         indices.shape().ToString() + " do not fit a variable of shape " +
                         variable.ToString());
}

}  // namespace monograph::ops::sparse_training
