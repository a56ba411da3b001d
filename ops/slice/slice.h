// Ops that cut out, repeat and pad: Slice, StridedSlice, StridedSliceGrad, Tile, Pad, PadV2.
#pragma once

#include "graph/scope.h"

namespace monograph {

// The block of `size` from `begin` on; a size of -1 means all that is left.
Output Slice(const Scope& scope, const Output& input, const Output& begin, const Output& size);
Output Slice(const Scope& scope, const Output& input, std::initializer_list<int64_t> begin,
             std::initializer_list<int64_t> size);

// NumPy's x[begin:end:strides, ...]; bit i of a mask says of position i: begin_mask, end_mask: the
// bound is left out; ellipsis_mask: "..."; new_axis_mask: a new dimension of 1; shrink_axis_mask: a
// single index, whose dimension goes.
struct StridedSliceMasks {
  int64_t begin_mask = 0, end_mask = 0, ellipsis_mask = 0, new_axis_mask = 0, shrink_axis_mask = 0;
};
Output StridedSlice(const Scope& scope, const Output& input, const Output& begin, const Output& end,
                    const Output& strides, const StridedSliceMasks& masks = {});
// x[index] along the first dimension, which goes.
Output Row(const Scope& scope, const Output& input, int64_t index);

// The input repeated multiples[i] times along dimension i.
Output Tile(const Scope& scope, const Output& input, const Output& multiples);
// Zeros (or `constant_values`) around the input: `paddings` is [rank, 2], before and after.
Output Pad(const Scope& scope, const Output& input, const Output& paddings);
Output PadV2(const Scope& scope, const Output& input, const Output& paddings,
             const Output& constant_values);

}  // namespace monograph
