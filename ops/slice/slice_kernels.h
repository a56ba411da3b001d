// The kernels of this folder, for any device (ops/gpu/moves.h).
#pragma once

#include "executor/kernel.h"
#include "ops/gpu/moves.h"
#include "ops/slice/strided_slice.h"

namespace monograph::ops::slice {

template <typename Moves>
class SliceKernel : public Kernel {
 public:
  explicit SliceKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor& input = c.input(0);
    const Shape in = input.shape();
    MG_ASSIGN_OR_RETURN(const SmallInts begin, IntsOf(c.input(1), "begin"));
    MG_ASSIGN_OR_RETURN(const SmallInts size, IntsOf(c.input(2), "size"));
    if (begin.size() != in.rank() || size.size() != in.rank()) {
      return InvalidArgument("begin and size have " + std::to_string(begin.size()) + " and " +
                             std::to_string(size.size()) + " entries for an input of shape " +
                             in.ToString());
    }
    Shape shape;
    bool rows = true;  // only the first dimension is cut
    for (int i = 0; i < in.rank(); ++i) {
      const int64_t n = size[i] == -1 ? in.dim(i) - begin[i] : size[i];
      if (begin[i] < 0 || n < 0 || begin[i] > in.dim(i) || n > in.dim(i) - begin[i]) {
        return InvalidArgument("begin " + std::to_string(begin[i]) + " and size " +
                               std::to_string(size[i]) + " leave dimension " + std::to_string(i) +
                               " of " + in.ToString());
      }
      shape.AddDim(n);
      rows = rows && (i == 0 || n == in.dim(i));
    }
    if (rows && in.rank() > 0) {
      c.set_output(0, input.Slice(begin[0], begin[0] + shape.dim(0)));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const auto from = StridesOf(in), to = StridesOf(shape);
    StridedSpace space;
    int64_t first = 0;
    for (int i = 0; i < in.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      first += begin[i] * from[k];
      space.Add(shape.dim(i), from[k], to[k]);
    }
    const size_t bytes = DTypeSize(out->dtype());
    return Moves::Strided(
        c, bytes, static_cast<const char*>(input.raw()) + static_cast<size_t>(first) * bytes,
        out->raw(), space);
  }
};

class StridedSliceBase : public Kernel {
 public:
  explicit StridedSliceBase(const KernelConstruction& k)
      : masks_{k.attr<int64_t>("begin_mask"), k.attr<int64_t>("end_mask"),
               k.attr<int64_t>("ellipsis_mask"), k.attr<int64_t>("new_axis_mask"),
               k.attr<int64_t>("shrink_axis_mask")} {}

 protected:
  // The bounds are inputs 1, 2 and 3.
  Result<StridedSlicePlan> Plan(KernelContext& c, const Shape& whole) const {
    MG_ASSIGN_OR_RETURN(const SmallInts begin, IntsOf(c.input(1), "begin"));
    MG_ASSIGN_OR_RETURN(const SmallInts end, IntsOf(c.input(2), "end"));
    MG_ASSIGN_OR_RETURN(const SmallInts strides, IntsOf(c.input(3), "strides"));
    if (begin.size() != end.size() || begin.size() != strides.size()) {
      return InvalidArgument("begin, end and strides must have the same number of entries, not " +
                             std::to_string(begin.size()) + ", " + std::to_string(end.size()) +
                             " and " + std::to_string(strides.size()));
    }
    return PlanStridedSlice(whole, begin.size(), begin.span(), end.span(), strides.span(), masks_);
  }

  static Status CheckPart(const StridedSlicePlan& plan, const Shape& whole, const Tensor& part,
                          const char* name) {
    if (plan.output.AsShape() == part.shape()) return Status();
    return InvalidArgument(std::string(name) + " has shape " + part.shape().ToString() +
                           ", the slice of " + whole.ToString() + " has shape " +
                           plan.output.ToString());
  }

  // Writes `part`, which has been checked, over the slice of `to`, a tensor of shape `whole`.
  template <typename Moves>
  static Status Put(KernelContext& c, const StridedSlicePlan& plan, const Shape& whole,
                    const Tensor& part, void* to) {
    if (part.elements() == 0) return Status();
    const auto from_strides = StridesOf(plan.sizes.AsShape()), to_strides = StridesOf(whole);
    StridedSpace space;
    int64_t first = 0;
    for (int i = 0; i < whole.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      first += plan.begin[k] * to_strides[k];
      space.Add(plan.sizes.dim(i), from_strides[k], plan.stride[k] * to_strides[k]);
    }
    const size_t bytes = DTypeSize(part.dtype());
    return Moves::Strided(c, bytes, part.raw(),
                          static_cast<char*>(to) + static_cast<size_t>(first) * bytes, space);
  }

 private:
  const StridedSliceMasks masks_;
};

template <typename Moves>
class StridedSliceKernel : public StridedSliceBase {
 public:
  using StridedSliceBase::StridedSliceBase;
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const StridedSlicePlan plan, Plan(c, in));
    const Shape shape = plan.output.AsShape();
    bool rows = true;  // only the first dimension is cut, without steps
    for (int i = 0; i < in.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      const bool whole = plan.sizes.dim(i) == in.dim(i) && plan.stride[k] == 1;
      rows = rows && (whole || (i == 0 && (plan.stride[k] == 1 || plan.sizes.dim(i) <= 1)));
    }
    if (rows) {
      c.set_output(
          0,
          in.rank() == 0
              ? c.input(0).Reshaped(shape)
              : c.input(0).Slice(plan.begin[0], plan.begin[0] + plan.sizes.dim(0)).Reshaped(shape));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const auto from = StridesOf(in), to = StridesOf(plan.sizes.AsShape());
    StridedSpace space;
    int64_t first = 0;
    for (int i = 0; i < in.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      first += plan.begin[k] * from[k];
      space.Add(plan.sizes.dim(i), plan.stride[k] * from[k], to[k]);
    }
    const size_t bytes = DTypeSize(out->dtype());
    if (shape.elements() == 0) return Status();
    return Moves::Strided(
        c, bytes, static_cast<const char*>(c.input(0).raw()) + static_cast<size_t>(first) * bytes,
        out->raw(), space);
  }
};

template <typename Moves>
class StridedSliceGradKernel : public StridedSliceBase {
 public:
  using StridedSliceBase::StridedSliceBase;
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape whole, ShapeFrom(c.input(0), "the shape"));
    MG_ASSIGN_OR_RETURN(const StridedSlicePlan plan, Plan(c, whole));
    MG_RETURN_IF_ERROR(CheckPart(plan, whole, c.input(4), "dy"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, whole));
    MG_RETURN_IF_ERROR(Moves::Zero(c, out->raw(), out->bytes()));
    return Put<Moves>(c, plan, whole, c.input(4), out->raw());
  }
};

template <typename Moves>
class StridedSliceUpdateKernel : public StridedSliceBase {
 public:
  using StridedSliceBase::StridedSliceBase;
  Status Compute(KernelContext& c) override {
    const Shape whole = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const StridedSlicePlan plan, Plan(c, whole));
    MG_RETURN_IF_ERROR(CheckPart(plan, whole, c.input(4), "value"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, whole));
    if (out->raw() != c.input(0).raw())
      MG_RETURN_IF_ERROR(Moves::Copy(c, out->raw(), c.input(0).raw(), out->bytes()));
    return Put<Moves>(c, plan, whole, c.input(4), out->raw());
  }
};

template <typename Moves>
class TileKernel : public Kernel {
 public:
  explicit TileKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const SmallInts multiples, IntsOf(c.input(1), "multiples"));
    if (multiples.size() != in.rank()) {
      return InvalidArgument(std::to_string(multiples.size()) +
                             " multiples for an input of shape " + in.ToString());
    }
    SmallInts dims;
    for (int i = 0; i < in.rank(); ++i) {
      int64_t dim = 0;
      if (multiples[i] < 0) return InvalidArgument("multiples must not be negative");
      if (__builtin_mul_overflow(in.dim(i), multiples[i], &dim))
        return InvalidArgument("the result is too large");
      dims.push_back(dim);
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
    if (shape == in) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (shape.elements() == 0) return Status();
    // Fills [m0, d0, m1, d1, ...], where the source does not move along the m's. Pairs that change
    // nothing are joined, so that the rank fits; beyond that, from the last dimension on, finished
    // blocks are copied.
    const auto from = StridesOf(in), to = StridesOf(shape);
    const size_t bytes = DTypeSize(out->dtype());
    int repeated = 0;
    for (int i = 0; i < in.rank(); ++i) repeated += multiples[i] != 1 ? 1 : 0;
    if (in.rank() + repeated <= kMaxRank) {
      StridedSpace space;
      for (int i = 0; i < in.rank(); ++i) {
        const auto k = static_cast<size_t>(i);
        if (multiples[i] != 1) space.Add(multiples[i], 0, in.dim(i) * to[k]);
        space.Add(in.dim(i), from[k], to[k]);
      }
      return Moves::Strided(c, bytes, c.input(0).raw(), out->raw(), space);
    }
    StridedSpace space;
    for (int i = 0; i < in.rank(); ++i)
      space.Add(in.dim(i), from[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
    MG_RETURN_IF_ERROR(Moves::Strided(c, bytes, c.input(0).raw(), out->raw(), space));
    for (int axis = in.rank() - 1; axis >= 0; --axis) {
      if (multiples[axis] == 1) continue;
      StridedSpace copies;
      const bool full = axis + 2 > kMaxRank;  // no place for the first dimension: a loop
      for (int i = full ? 1 : 0; i < axis; ++i) {
        copies.Add(in.dim(i), to[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
      }
      const int64_t block = in.dim(axis) * to[static_cast<size_t>(axis)];
      copies.Add(multiples[axis] - 1, 0, block);
      copies.Add(block, 1, 1);
      const int64_t parts = full ? in.dim(0) : 1;
      for (int64_t part = 0; part < parts && !c.cancelled(); ++part) {
        char* const from_part =
            static_cast<char*>(out->raw()) + static_cast<size_t>(part * to[0]) * bytes;
        MG_RETURN_IF_ERROR(Moves::Strided(c, bytes, from_part,
                                          from_part + static_cast<size_t>(block) * bytes, copies));
      }
    }
    return Status();
  }
};

template <typename Moves>
class PadKernel : public Kernel {  // also PadV2
 public:
  explicit PadKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    const Tensor& paddings = c.input(1);
    if (!(paddings.shape() == Shape{in.rank(), 2})) {
      return InvalidArgument("paddings of shape " + paddings.shape().ToString() +
                             " for an input of shape " + in.ToString());
    }
    MG_ASSIGN_OR_RETURN(const SmallInts pads,
                        IntsOf(paddings.Reshaped(Shape{2 * in.rank()}), "paddings"));
    SmallInts dims;
    bool any = false;
    for (int i = 0; i < in.rank(); ++i) {
      if (pads[2 * i] < 0 || pads[2 * i + 1] < 0)
        return InvalidArgument("paddings must not be negative");
      int64_t sum = 0, dim = 0;
      if (__builtin_add_overflow(pads[2 * i], pads[2 * i + 1], &sum) ||
          __builtin_add_overflow(sum, in.dim(i), &dim)) {
        return InvalidArgument("the result is too large");
      }
      any = any || sum > 0;
      dims.push_back(dim);
    }
    if (c.num_inputs() > 2 && c.input(2).elements() != 1)
      return InvalidArgument("constant_values must be a scalar");
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
    if (!any) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const size_t bytes = DTypeSize(out->dtype());
    if (c.num_inputs() > 2) {
      MG_RETURN_IF_ERROR(Moves::Fill(c, bytes, c.input(2).raw(), out->raw(), shape.elements()));
    } else {
      MG_RETURN_IF_ERROR(Moves::Zero(c, out->raw(), out->bytes()));
    }
    const auto from = StridesOf(in), to = StridesOf(shape);
    StridedSpace space;
    int64_t first = 0;
    for (int i = 0; i < in.rank(); ++i) {
      const auto k = static_cast<size_t>(i);
      first += pads[2 * i] * to[k];
      space.Add(in.dim(i), from[k], to[k]);
    }
    return Moves::Strided(c, bytes, c.input(0).raw(),
                          static_cast<char*>(out->raw()) + static_cast<size_t>(first) * bytes,
                          space);
  }
};

}  // namespace monograph::ops::slice
