// The kernels of this folder that move elements, for any device (ops/gpu/moves.h).
#pragma once

#include <algorithm>

#include "executor/kernel.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::transpose {

template <typename Moves>
class TransposeKernel : public Kernel {
 public:
  explicit TransposeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const SmallInts perm, IntsOf(c.input(1), "perm"));
    if (perm.size() != in.rank()) {
      return InvalidArgument("perm has " + std::to_string(perm.size()) +
                             " entries for a tensor of rank " + std::to_string(in.rank()));
    }
    Shape out_shape;
    std::array<size_t, kMaxRank> source{};
    std::array<bool, kMaxRank> seen{};
    int64_t moved = 0, last = -1;  // dimensions other than 1, and whether they keep their order
    for (int i = 0; i < perm.size(); ++i) {
      const int64_t axis = perm[i] < 0 ? perm[i] + in.rank() : perm[i];
      if (axis < 0 || axis >= in.rank()) {
        return InvalidArgument("perm names dimension " + std::to_string(perm[i]) +
                               " of a tensor of rank " + std::to_string(in.rank()));
      }
      source[static_cast<size_t>(i)] = static_cast<size_t>(axis);
      if (seen[static_cast<size_t>(axis)]) {
        return InvalidArgument("perm names dimension " + std::to_string(axis) + " twice");
      }
      seen[static_cast<size_t>(axis)] = true;
      out_shape.AddDim(in.dim(static_cast<int>(axis)));
      if (in.dim(static_cast<int>(axis)) == 1) continue;
      moved += axis < last ? 1 : 0;
      last = axis;
    }
    if (moved == 0) {
      c.set_output(0, c.TakeInput(0).Reshaped(out_shape));
      return Status();
    }
    const auto from = StridesOf(in), to = StridesOf(out_shape);
    StridedSpace space;
    for (int i = 0; i < out_shape.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      space.Add(out_shape.dim(i), from[source[k]], to[k]);
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, out_shape));
    return Moves::Strided(c, DTypeSize(out->dtype()), c.input(0).raw(), out->raw(), space);
  }
};

template <typename Moves>
class ReverseKernel : public Kernel {  // also Reverse
 public:
  explicit ReverseKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    std::array<bool, kMaxRank> reversed{};
    SmallInts axes;
    if (c.input(1).dtype() == DT_BOOL) {  // Reverse: for each dimension whether
      if (!(c.input(1).shape() == Shape{shape.rank()})) {
        return InvalidArgument("dims of shape " + c.input(1).shape().ToString() +
                               " for a tensor of rank " + std::to_string(shape.rank()));
      }
      std::copy_n(c.input(1).data<bool>(), shape.rank(), reversed.begin());
    } else {
      MG_ASSIGN_OR_RETURN(axes, IntsOf(c.input(1), "axis"));
    }
    for (int64_t axis : axes.span()) {
      const int64_t at = axis < 0 ? axis + shape.rank() : axis;
      if (at < 0 || at >= shape.rank()) {
        return InvalidArgument("axis " + std::to_string(axis) +
                               " is out of range for a tensor of rank " +
                               std::to_string(shape.rank()));
      }
      if (reversed[static_cast<size_t>(at)])
        return InvalidArgument("axis " + std::to_string(at) + " is given twice");
      reversed[static_cast<size_t>(at)] = true;
    }
    const auto strides = StridesOf(shape);
    StridedSpace space;
    int64_t first = 0;
    for (int i = 0; i < shape.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      if (reversed[k]) first += (shape.dim(i) - 1) * strides[k];
      space.Add(shape.dim(i), reversed[k] ? -strides[k] : strides[k], strides[k]);
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    const size_t size = DTypeSize(out->dtype());
    return Moves::Strided(
        c, size, static_cast<const char*>(c.input(0).raw()) + static_cast<size_t>(first) * size,
        out->raw(), space);
  }
};

}  // namespace monograph::ops::transpose
