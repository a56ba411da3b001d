// Small helpers for shape functions: one dimension at a time, -1 for unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "base/status.h"

namespace monograph::ops {

// What two sides say about one dimension together. InvalidArgument "<what>: 3 and 4 differ".
inline Result<int64_t> MergeDim(int64_t a, int64_t b, std::string_view what) {
  if (a >= 0 && b >= 0 && a != b) {
    return InvalidArgument(std::string(what) + ": " + std::to_string(a) + " and " +
                           std::to_string(b) + " differ");
  }
  return a >= 0 ? a : b;
}

inline Status TooManyDimensions() {
  return InvalidArgument("the result would have more than " + std::to_string(kMaxRank) +
                         " dimensions");
}

// [first] + rest; nothing is known where that has too many dimensions, which the kernel refuses.
inline PartialShape Prepended(int64_t first, const PartialShape& rest) {
  if (!rest.known_rank() || rest.rank() >= kMaxRank) return PartialShape();
  PartialShape shape{first};
  for (const int64_t dim : rest.dims()) shape.AddDim(dim);
  return shape;
}

}  // namespace monograph::ops
