// What the kernels of losses for every device check before they compute.
#pragma once

#include <cstdint>

#include "base/shape.h"
#include "base/status.h"

namespace monograph::ops::loss {

inline Status CheckSparse(const Shape& logits, const Shape& labels) {
  if (logits.rank() != 2)
    return InvalidArgument("logits must be a matrix, got " + logits.ToString());
  if (labels.rank() != 1 || labels.elements() != logits[0]) {
    return InvalidArgument("labels " + labels.ToString() + " do not fit logits " +
                           logits.ToString() + "; one label per row is needed");
  }
  return Status();
}

// The shape of the backprop.
inline Result<Shape> CheckDense(const Shape& logits, const Shape& labels) {
  MG_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes(logits, labels));
  if (shape.rank() != 2 || logits.rank() != 2 || labels.rank() != 2) {
    return InvalidArgument("logits " + logits.ToString() + " and labels " + labels.ToString() +
                           " must be matrices");
  }
  return shape;
}

// A matrix's stride along `dim`; 0 if the dimension is broadcast.
inline int64_t RowStride(const Shape& shape, int dim) {
  return shape[dim] == 1 ? 0 : dim == 0 ? shape[1] : int64_t{1};
}

inline Status CheckInTopK(const Shape& predictions, const Shape& targets) {
  if (predictions.rank() == 2 && targets.rank() == 1 && predictions[0] == targets.elements())
    return Status();
  return InvalidArgument("predictions " + predictions.ToString() + " and targets " +
                         targets.ToString() + " do not fit; one target per row is needed");
}

}  // namespace monograph::ops::loss
