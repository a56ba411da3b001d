// The shape that Bitcast gives.
#pragma once

#include <cstddef>
#include <string>

#include "ops/dims.h"

namespace monograph::ops::array {

// Of a tensor of `shape` whose elements of `from` bytes are read as elements of `to` bytes.
// REQUIRES: neither is 0.
inline Result<PartialShape> ShapeAfterBitcast(const PartialShape& shape, size_t from, size_t to) {
  if (!shape.known_rank() || from == to) return shape;
  if (from > to) {
    if (shape.rank() == kMaxRank) return TooManyDimensions();
    PartialShape more = shape;
    more.AddDim(static_cast<int64_t>(from / to));
    return more;
  }
  const auto wanted = static_cast<int64_t>(to / from);
  const int kept = shape.rank() - 1;
  if (kept < 0 || (shape.dim(kept) >= 0 && shape.dim(kept) != wanted)) {
    return InvalidArgument("Cannot bitcast due to shape. " + shape.ToString() +
                           " must end with a dimension of " + std::to_string(wanted));
  }
  return PartialShape(shape.dims().first(static_cast<size_t>(kept)));
}

}  // namespace monograph::ops::array
