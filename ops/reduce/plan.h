// What a reduction's axes mean for an input of a given shape.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>

#include "ops/cpu/kernel_util.h"

namespace monograph::ops::reduce {

// The input as alternating kept and reduced dimensions, neighbours of a kind joined and dimensions
// of 1 left out.
struct ReducePlan {
  Shape output;
  int rank = 0;
  std::array<int64_t, kMaxRank> size{};
  std::array<bool, kMaxRank> reduced{};
  int64_t kept_elements = 1, reduced_elements = 1;

  // The copy that brings the reduced dimensions to the end.
  StridedSpace ReducedLast() const {
    std::array<int64_t, kMaxRank> from{};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      from[static_cast<size_t>(i)] = stride;
      stride *= size[static_cast<size_t>(i)];
    }
    StridedSpace space;
    stride = kept_elements * reduced_elements;
    for (bool wanted : {false, true}) {
      for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
        if (reduced[i] != wanted) continue;
        stride /= size[i];
        space.Add(size[i], from[i], stride);
      }
    }
    return space;
  }
  bool Is(std::initializer_list<bool> pattern) const {
    return rank == static_cast<int>(pattern.size()) &&
           std::equal(pattern.begin(), pattern.end(), reduced.begin());
  }
};

inline Result<ReducePlan> MakePlan(const Shape& in, const Tensor& axes_tensor, bool keep_dims) {
  MG_ASSIGN_OR_RETURN(const SmallInts axes, IntsOf(axes_tensor, "the axes"));
  std::array<bool, kMaxRank> reduced{};
  for (int64_t axis : axes.span()) {
    const int64_t at = axis < 0 ? axis + in.rank() : axis;
    if (at < 0 || at >= in.rank()) {
      return InvalidArgument("axis " + std::to_string(axis) +
                             " is out of range for a tensor of rank " + std::to_string(in.rank()));
    }
    if (reduced[static_cast<size_t>(at)])
      return InvalidArgument("axis " + std::to_string(at) + " is given twice");
    reduced[static_cast<size_t>(at)] = true;
  }
  ReducePlan plan;
  for (int i = 0; i < in.rank(); ++i) {
    const bool gone = reduced[static_cast<size_t>(i)];
    const int64_t size = in.dim(i);
    if (!gone) plan.output.AddDim(size);
    if (gone && keep_dims) plan.output.AddDim(1);
    (gone ? plan.reduced_elements : plan.kept_elements) *= size;
    if (size == 1) continue;
    if (plan.rank > 0 && plan.reduced[static_cast<size_t>(plan.rank - 1)] == gone) {
      plan.size[static_cast<size_t>(plan.rank - 1)] *= size;
    } else {
      plan.size[static_cast<size_t>(plan.rank)] = size;
      plan.reduced[static_cast<size_t>(plan.rank++)] = gone;
    }
  }
  return plan;
}

}  // namespace monograph::ops::reduce
