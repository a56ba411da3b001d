// What a StridedSlice's bounds, strides and masks mean for an input of a given shape.
#pragma once

#include <array>
#include <span>

#include "base/shape.h"
#include "base/status.h"
#include "ops/slice/slice.h"

namespace monograph::ops::slice {

struct StridedSlicePlan {
  // Per dimension of the input: element begin + k * stride for k in [0, size).
  std::array<int64_t, kMaxRank> begin{}, stride{};
  PartialShape sizes;   // of the block, in the input's rank
  PartialShape output;  // with new axes put in and shrunk ones taken out
};

// `count` entries in begin, end and strides; any of the three may be empty: not known yet. Unknown
// sizes stay -1. InvalidArgument for an index out of range, a stride of 0, or more indices than
// dimensions. REQUIRES: input.known_rank().
Result<StridedSlicePlan> PlanStridedSlice(const PartialShape& input, int count,
                                          std::span<const int64_t> begin,
                                          std::span<const int64_t> end,
                                          std::span<const int64_t> strides,
                                          const StridedSliceMasks& masks);

}  // namespace monograph::ops::slice
