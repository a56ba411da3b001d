// The kernels of this folder that move elements, for any device (ops/gpu/moves.h).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "executor/kernel.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::concat {

// A shape seen around one axis: [outer, dim(axis), inner].
struct Around {
  int64_t outer = 1, inner = 1;
  Around(const Shape& shape, int axis) {
    for (int i = 0; i < axis; ++i) outer *= shape.dim(i);
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape.dim(i);
  }
};

// Also Concat, whose axis is the first input, and ParallelConcat, whose axis is 0.
template <typename Moves>
class ConcatKernel : public Kernel {
 public:
  explicit ConcatKernel(const KernelConstruction& k)
      : first_(k.op() == "Concat" ? 1 : 0), has_axis_(k.op() != "ParallelConcat") {}
  Status Compute(KernelContext& c) override {
    const int n = c.num_inputs() - (has_axis_ ? 1 : 0);
    const std::span<const Tensor> values =
        c.inputs().subspan(static_cast<size_t>(first_), static_cast<size_t>(n));
    Shape shape = values[0].shape();
    int axis = 0;
    if (has_axis_) {
      MG_ASSIGN_OR_RETURN(axis, AxisOf(c.input(first_ == 0 ? n : 0), shape.rank()));
    } else if (shape.rank() == 0 || shape[0] != 1) {
      return InvalidArgument("Size of first dimension must be 1, not that of " + shape.ToString());
    }
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      Shape other = values[static_cast<size_t>(i)].shape();
      if (other.rank() == shape.rank()) {
        if (__builtin_add_overflow(total, other.dim(axis), &total))
          return InvalidArgument("the result is too large");
        other.set_dim(axis, shape.dim(axis));
      }
      if (!(other == shape)) {
        return InvalidArgument("input " + std::to_string(i) + " of shape " +
                               values[static_cast<size_t>(i)].shape().ToString() +
                               " cannot be joined to input 0 of shape " + shape.ToString() +
                               " along axis " + std::to_string(axis));
      }
    }
    shape.set_dim(axis, total);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const Around around(shape, axis);
    const size_t unit = static_cast<size_t>(around.inner) * DTypeSize(out->dtype());
    RowParts parts;
    for (const Tensor& in : values)
      parts.Add(in.raw(), static_cast<size_t>(in.shape().dim(axis)) * unit);
    return Moves::Join(c, out->dtype(), parts.span(), around.outer, out->raw());
  }

 private:
  const int first_;
  const bool has_axis_;
};

// Gives output i the part of `sizes[i]` along `axis`.
template <typename Moves>
Status SplitInto(KernelContext& c, const Tensor& value, int axis, std::span<const int64_t> sizes) {
  const Shape whole = value.shape();
  const Around around(whole, axis);
  const size_t unit = static_cast<size_t>(around.inner) * DTypeSize(value.dtype());
  RowParts parts;
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = whole;
    shape.set_dim(axis, sizes[i]);
    if (axis == 0) {
      c.set_output(static_cast<int>(i), value.Slice(begin, begin + sizes[i]));
    } else if (around.outer == 1 && sizes[i] > 0) {
      c.set_output(static_cast<int>(i), Tensor(value.dtype(), shape, value.buffer(),
                                               value.offset() + static_cast<size_t>(begin) * unit));
    } else {
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(static_cast<int>(i), shape));
      parts.Add(out->raw(), static_cast<size_t>(sizes[i]) * unit);
    }
    begin += sizes[i];
  }
  if (parts.empty()) return Status();
  return Moves::Part(c, value.dtype(), value.raw(), around.outer, parts.span());
}

template <typename Moves>
class SplitKernel : public Kernel {
 public:
  explicit SplitKernel(const KernelConstruction& k)
      : parts_(static_cast<size_t>(k.num_outputs())) {}
  Status Compute(KernelContext& c) override {
    const Tensor& value = c.input(1);
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(0), value.shape().rank()));
    const int64_t size = value.shape().dim(axis), n = static_cast<int64_t>(parts_);
    if (size % n != 0) {
      return InvalidArgument("dimension " + std::to_string(axis) + " of " +
                             value.shape().ToString() + " cannot be split into " +
                             std::to_string(n) + " equal parts");
    }
    const std::vector<int64_t> sizes(parts_, size / n);
    return SplitInto<Moves>(c, value, axis, sizes);
  }

 private:
  const size_t parts_;
};

template <typename Moves>
class SplitVKernel : public Kernel {
 public:
  explicit SplitVKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Tensor& value = c.input(0);
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(2), value.shape().rank()));
    const Tensor& given = c.input(1);
    if (given.shape().rank() != 1 || given.elements() != c.num_outputs()) {
      return InvalidArgument("size_splits must have " + std::to_string(c.num_outputs()) +
                             " entries, not shape " + given.shape().ToString());
    }
    std::vector<int64_t> sizes;
    int64_t sum = 0;
    int open = -1;
    for (int i = 0; i < c.num_outputs(); ++i) {
      const int64_t size = given.dtype() == DT_INT32   ? given.data<int32_t>()[i]
                           : given.dtype() == DT_INT64 ? given.data<int64_t>()[i]
                                                       : given.data<int8_t>()[i];
      if (size < -1 || (size == -1 && open >= 0)) {
        return InvalidArgument("sizes must not be negative, but for one -1 at most");
      }
      if (size == -1) open = i;
      if (__builtin_add_overflow(sum, std::max<int64_t>(size, 0), &sum))
        return InvalidArgument("the sum of the sizes does not fit in 63 bits");
      sizes.push_back(size);
    }
    const int64_t whole = value.shape().dim(axis);
    if (open >= 0 ? sum > whole : sum != whole) {
      return InvalidArgument("the sizes add up to " + std::to_string(sum) + ", dimension " +
                             std::to_string(axis) + " of " + value.shape().ToString() + " to " +
                             std::to_string(whole));
    }
    if (open >= 0) sizes[static_cast<size_t>(open)] = whole - sum;
    return SplitInto<Moves>(c, value, axis, sizes);
  }
};

template <typename Moves>
class PackKernel : public Kernel {
 public:
  explicit PackKernel(const KernelConstruction& k) : axis_(k.attr<int64_t>("axis")) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    const int64_t axis = axis_ < 0 ? axis_ + in.rank() + 1 : axis_;
    if (axis < 0 || axis > in.rank() || in.rank() == kMaxRank) {
      return InvalidArgument("axis " + std::to_string(axis_) +
                             " is out of range for tensors of shape " + in.ToString());
    }
    Shape shape;
    for (int i = 0; i <= in.rank(); ++i) {
      shape.AddDim(i == axis ? c.num_inputs() : in.dim(i < axis ? i : i - 1));
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const Around around(shape, static_cast<int>(axis));
    const size_t unit = static_cast<size_t>(around.inner) * DTypeSize(out->dtype());
    RowParts parts;
    for (int i = 0; i < c.num_inputs(); ++i) {
      if (!(c.input(i).shape() == in)) {
        return InvalidArgument("input " + std::to_string(i) + " has shape " +
                               c.input(i).shape().ToString() + ", input 0 " + in.ToString());
      }
      parts.Add(c.input(i).raw(), unit);
    }
    return Moves::Join(c, out->dtype(), parts.span(), around.outer, out->raw());
  }

 private:
  const int64_t axis_;
};

template <typename Moves>
class UnpackKernel : public Kernel {
 public:
  explicit UnpackKernel(const KernelConstruction& k) : axis_(k.attr<int64_t>("axis")) {}
  Status Compute(KernelContext& c) override {
    const Tensor& value = c.input(0);
    const Shape in = value.shape();
    const int64_t axis = axis_ < 0 ? axis_ + in.rank() : axis_;
    if (axis < 0 || axis >= in.rank() || in.dim(static_cast<int>(axis)) != c.num_outputs()) {
      return InvalidArgument("cannot unpack a tensor of shape " + in.ToString() + " along axis " +
                             std::to_string(axis_) + " into " + std::to_string(c.num_outputs()));
    }
    Shape shape;
    for (int i = 0; i < in.rank(); ++i) {
      if (i != axis) shape.AddDim(in.dim(i));
    }
    const Around around(in, static_cast<int>(axis));
    const size_t unit = static_cast<size_t>(around.inner) * DTypeSize(value.dtype());
    RowParts parts;
    for (int i = 0; i < c.num_outputs(); ++i) {
      if (around.outer == 1) {
        c.set_output(i, Tensor(value.dtype(), shape, value.buffer(),
                               value.offset() + static_cast<size_t>(i) * unit));
        continue;
      }
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i, shape));
      parts.Add(out->raw(), unit);
    }
    if (parts.empty()) return Status();
    return Moves::Part(c, value.dtype(), value.raw(), around.outer, parts.span());
  }

 private:
  const int64_t axis_;
};

}  // namespace monograph::ops::concat
