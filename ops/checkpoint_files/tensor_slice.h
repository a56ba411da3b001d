// TensorSlice: a box of a tensor, as TensorFlow's checkpoints name the parts of a partitioned
// variable: "10 4 0,5:-" is rows 0 to 4 of a [10, 4].
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/shape.h"
#include "base/status.h"
#include "base/tensor.h"

namespace monograph {

// Of one dimension; length -1: all of it.
struct SliceExtent {
  int64_t start = 0, length = -1;
  friend bool operator==(const SliceExtent&, const SliceExtent&) = default;
};
// One for each dimension; none: the whole of a tensor of any rank.
using TensorSlice = std::vector<SliceExtent>;

// A text with the shape of the whole tensor in front; "" is the whole of a tensor whose shape the
// text does not say.
struct ShapeAndSlice {
  bool has_shape = false;
  Shape whole;
  TensorSlice slice;
};
// InvalidArgument if the text is none, or the slice is not inside of its shape.
Result<ShapeAndSlice> ParseShapeAndSlice(const std::string& text);

// A slice of a tensor whose shape is known: where it begins, and its shape.
struct Box {
  std::vector<int64_t> begin;
  Shape shape;

  static Box Whole(const Shape& shape);
  // Whether all dimensions but the first are whole: it is a range of the tensor's bytes.
  bool IsRowsOf(const Shape& whole) const;
};
// InvalidArgument if there is no such slice of `whole`.
Result<Box> BoxOf(const TensorSlice& slice, const Shape& whole);

// Calls copy(from, to, count) for each run of elements that both boxes of one tensor have: `from`
// and `to` are positions in arrays that hold `source` and `target`. How many elements they share.
using CopyRun = std::function<void(int64_t from, int64_t to, int64_t count)>;
int64_t CopyShared(const Box& source, const Box& target, const CopyRun& copy);
// The same for tensors of one type, of plain data or strings. REQUIRES: the boxes' shapes.
int64_t CopyTensorBox(const Tensor& from, const Box& source, Tensor* to, const Box& target);

}  // namespace monograph
