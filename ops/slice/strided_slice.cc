#include "ops/slice/strided_slice.h"

#include <algorithm>
#include <bit>
#include <string>

#include "ops/dims.h"

namespace monograph::ops::slice {
namespace {

bool Bit(int64_t mask, int i) { return (mask >> i & 1) != 0; }

struct Bounds {
  int64_t begin, size;  // -1: unknown
};

// One dimension of size `dim` (-1: unknown) cut by the sparse entry i.
Result<Bounds> CutDimension(int64_t dim, int axis, int i, std::span<const int64_t> begin,
                            std::span<const int64_t> end, int64_t stride,
                            const StridedSliceMasks& masks) {
  const auto at = static_cast<size_t>(i);
  if (Bit(masks.shrink_axis_mask, i)) {
    if (stride < 0) return InvalidArgument("a single index must have a positive stride");
    if (begin.empty() || (dim < 0 && begin[at] < 0)) return Bounds{0, 1};
    const int64_t index = begin[at] < 0 ? begin[at] + dim : begin[at];
    if (dim >= 0 && (index < 0 || index >= dim)) {
      return InvalidArgument("slice index " + std::to_string(begin[at]) + " of dimension " +
                             std::to_string(axis) + " out of bounds [0, " + std::to_string(dim) +
                             ")");
    }
    return Bounds{index, 1};
  }
  const bool whole_begin = Bit(masks.begin_mask, i), whole_end = Bit(masks.end_mask, i);
  if (dim < 0 || (begin.empty() && !whole_begin) || (end.empty() && !whole_end))
    return Bounds{0, -1};
  const int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? dim : dim - 1;
  auto clamp = [&](int64_t x) { return std::clamp(x < 0 ? x + dim : x, lowest, highest); };
  const int64_t from = whole_begin ? (stride > 0 ? lowest : highest) : clamp(begin[at]);
  const int64_t to = whole_end ? (stride > 0 ? highest : lowest) : clamp(end[at]);
  const int64_t distance = to - from;
  if (distance == 0 || (distance < 0) != (stride < 0)) return Bounds{0, 0};
  return Bounds{from, distance / stride + (distance % stride != 0 ? 1 : 0)};
}

}  // namespace

Result<StridedSlicePlan> PlanStridedSlice(const PartialShape& input, int count,
                                          std::span<const int64_t> begin,
                                          std::span<const int64_t> end,
                                          std::span<const int64_t> strides,
                                          const StridedSliceMasks& masks) {
  if (std::popcount(static_cast<uint32_t>(masks.ellipsis_mask)) > 1) {
    return InvalidArgument("multiple ellipses in slice spec not allowed");
  }
  if (count > 32) return InvalidArgument("a slice of more than 32 indices");
  StridedSlicePlan plan;
  plan.sizes = plan.output = PartialShape::Scalar();
  const int rank = input.rank();
  auto whole = [&](int axis) {
    plan.begin[static_cast<size_t>(axis)] = 0;
    plan.stride[static_cast<size_t>(axis)] = 1;
    plan.sizes.AddDim(input.dim(axis));
  };
  auto emit = [&](int64_t size) -> Status {
    if (plan.output.rank() == kMaxRank) return TooManyDimensions();
    plan.output.AddDim(size);
    return Status();
  };
  int axis = 0;
  for (int i = 0; i < count; ++i) {
    if (Bit(masks.ellipsis_mask, i)) {
      int later = 0;  // entries after the ellipsis that take a dimension of the input
      for (int k = i + 1; k < count; ++k) later += Bit(masks.new_axis_mask, k) ? 0 : 1;
      for (; axis < rank - later; ++axis) {
        whole(axis);
        MG_RETURN_IF_ERROR(emit(input.dim(axis)));
      }
    } else if (Bit(masks.new_axis_mask, i)) {
      MG_RETURN_IF_ERROR(emit(1));
    } else {
      if (axis >= rank) {
        return InvalidArgument("Index out of range using input dim " + std::to_string(axis) +
                               "; input has only " + std::to_string(rank) + " dims");
      }
      const int64_t stride = strides.empty() ? 1 : strides[static_cast<size_t>(i)];
      if (stride == 0)
        return InvalidArgument("strides[" + std::to_string(i) + "] must be non-zero");
      MG_ASSIGN_OR_RETURN(Bounds bounds,
                          CutDimension(input.dim(axis), axis, i, begin, end, stride, masks));
      const bool shrink = Bit(masks.shrink_axis_mask, i);
      if (strides.empty() && !shrink) bounds.size = -1;
      plan.begin[static_cast<size_t>(axis)] = bounds.begin;
      plan.stride[static_cast<size_t>(axis)] = stride;
      plan.sizes.AddDim(bounds.size);
      if (!shrink) MG_RETURN_IF_ERROR(emit(bounds.size));
      ++axis;
    }
  }
  for (; axis < rank; ++axis) {  // an implicit ellipsis at the end
    whole(axis);
    MG_RETURN_IF_ERROR(emit(input.dim(axis)));
  }
  return plan;
}

}  // namespace monograph::ops::slice
