// Shares: which rank of a collective between GPUs works on which elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shape.h"

namespace monograph {

// Elements [begin, end) of one tensor of a list.
struct TensorPart {
  uint32_t tensor = 0;
  int64_t begin = 0, end = 0;
  int64_t elements() const { return end - begin; }
  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

// The elements of all tensors, one after the other, cut into a share for each rank: equal but for
// what keeps cuts at multiples of 64 elements of a tensor. Depends on nothing but its arguments.
std::vector<std::vector<TensorPart>> CutShares(std::span<const Shape> tensors, int ranks);

}  // namespace monograph
