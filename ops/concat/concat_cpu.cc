#include "executor/kernel.h"
#include "ops/copy_elements_cpu.h"

namespace monograph::ops::concat {
namespace {

// A shape seen around one axis: [outer, dim(axis), inner].
struct Around {
  int64_t outer = 1, inner = 1;
  Around(const Shape& shape, int axis) {
    for (int i = 0; i < axis; ++i) outer *= shape.dim(i);
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape.dim(i);
  }
};

// Copies `outer` blocks of `bytes` between rows that lie `from_pitch` and `to_pitch` bytes apart.
void CopyBlocks(KernelContext& c, DType dtype, const char* from, char* to, int64_t outer,
                size_t bytes, size_t from_pitch, size_t to_pitch) {
  if (bytes == 0) return;
  c.ParallelFor(outer, 5 + static_cast<int64_t>(bytes / 8), [=](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      CopyElements(dtype, from + i * from_pitch, to + i * to_pitch, bytes);
    }
  });
}

class ConcatKernel : public Kernel {
 public:
  explicit ConcatKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const int n = c.num_inputs() - 1;
    Shape shape = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(n), shape.rank()));
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      Shape other = c.input(i).shape();
      if (other.rank() == shape.rank()) {
        total += other.dim(axis);
        other.set_dim(axis, shape.dim(axis));
      }
      if (!(other == shape)) {
        return InvalidArgument("input " + std::to_string(i) + " of shape " +
                               c.input(i).shape().ToString() +
                               " cannot be joined to input 0 of shape " + shape.ToString() +
                               " along axis " + std::to_string(axis));
      }
    }
    shape.set_dim(axis, total);
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const Around around(shape, axis);
    const size_t unit = static_cast<size_t>(around.inner) * DTypeSize(out->dtype());
    char* to = static_cast<char*>(out->raw());
    for (int i = 0; i < n; ++i) {
      const Tensor& in = c.input(i);
      const size_t bytes = static_cast<size_t>(in.shape().dim(axis)) * unit;
      CopyBlocks(c, in.dtype(), static_cast<const char*>(in.raw()), to, around.outer, bytes, bytes,
                 static_cast<size_t>(total) * unit);
      to += bytes;
    }
    return Status();
  }
};

template <typename T>
class ConcatOffsetKernel : public Kernel {
 public:
  explicit ConcatOffsetKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const auto rank = static_cast<int>(c.input(1).elements());
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(0), rank));
    T offset = 0;
    for (int i = 1; i < c.num_inputs(); ++i) {
      if (c.input(i).shape().rank() != 1 || c.input(i).elements() != rank) {
        return InvalidArgument("input " + std::to_string(i) + " should contain " +
                               std::to_string(rank) + " elements, but has shape " +
                               c.input(i).shape().ToString());
      }
      const T *shape = c.input(i).data<T>(), *first = c.input(1).data<T>();
      for (int d = 0; d < rank; ++d) {
        if (d != axis && shape[d] != first[d]) {
          return InvalidArgument("shapes differ in dimension " + std::to_string(d) +
                                 ", not only along axis " + std::to_string(axis));
        }
      }
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i - 1, c.input(i).shape()));
      std::fill_n(out->data<T>(), rank, T{0});
      out->data<T>()[axis] = offset;
      offset += shape[axis];
    }
    return Status();
  }
};

// Gives output i the part of `sizes[i]` along `axis`.
Status SplitInto(KernelContext& c, const Tensor& value, int axis, std::span<const int64_t> sizes) {
  const Shape whole = value.shape();
  const Around around(whole, axis);
  const size_t unit = static_cast<size_t>(around.inner) * DTypeSize(value.dtype());
  const size_t pitch = static_cast<size_t>(whole.dim(axis)) * unit;
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
      const size_t bytes = static_cast<size_t>(sizes[i]) * unit;
      CopyBlocks(c, value.dtype(),
                 static_cast<const char*>(value.raw()) + static_cast<size_t>(begin) * unit,
                 static_cast<char*>(out->raw()), around.outer, bytes, pitch, bytes);
    }
    begin += sizes[i];
  }
  return Status();
}

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
    return SplitInto(c, value, axis, sizes);
  }

 private:
  const size_t parts_;
};

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
      sum += std::max<int64_t>(size, 0);
      sizes.push_back(size);
    }
    const int64_t whole = value.shape().dim(axis);
    if (open >= 0 ? sum > whole : sum != whole) {
      return InvalidArgument("the sizes add up to " + std::to_string(sum) + ", dimension " +
                             std::to_string(axis) + " of " + value.shape().ToString() + " to " +
                             std::to_string(whole));
    }
    if (open >= 0) sizes[static_cast<size_t>(open)] = whole - sum;
    return SplitInto(c, value, axis, sizes);
  }
};

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
    char* to = static_cast<char*>(out->raw());
    for (int i = 0; i < c.num_inputs(); ++i) {
      if (!(c.input(i).shape() == in)) {
        return InvalidArgument("input " + std::to_string(i) + " has shape " +
                               c.input(i).shape().ToString() + ", input 0 " + in.ToString());
      }
      CopyBlocks(c, out->dtype(), static_cast<const char*>(c.input(i).raw()),
                 to + static_cast<size_t>(i) * unit, around.outer, unit, unit,
                 static_cast<size_t>(c.num_inputs()) * unit);
    }
    return Status();
  }

 private:
  const int64_t axis_;
};

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
    for (int i = 0; i < c.num_outputs(); ++i) {
      if (around.outer == 1) {
        c.set_output(i, Tensor(value.dtype(), shape, value.buffer(),
                               value.offset() + static_cast<size_t>(i) * unit));
        continue;
      }
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i, shape));
      CopyBlocks(c, value.dtype(),
                 static_cast<const char*>(value.raw()) + static_cast<size_t>(i) * unit,
                 static_cast<char*>(out->raw()), around.outer, unit,
                 static_cast<size_t>(c.num_outputs()) * unit, unit);
    }
    return Status();
  }

 private:
  const int64_t axis_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForCopiedTypes<ConcatKernel>(registry, {.op = "ConcatV2", .host_args = {"axis"}});
  registry->Add<ConcatOffsetKernel<int32_t>>({.op = "ConcatOffset",
                                              .types = {{"shape_type", DT_INT32}},
                                              .host_args = {"concat_dim", "shape", "offset"},
                                              .cost = KernelCost::kCheap});
  registry->Add<ConcatOffsetKernel<int64_t>>({.op = "ConcatOffset",
                                              .types = {{"shape_type", DT_INT64}},
                                              .host_args = {"concat_dim", "shape", "offset"},
                                              .cost = KernelCost::kCheap});
  AddForCopiedTypes<SplitKernel>(registry, {.op = "Split", .host_args = {"split_dim"}});
  AddForCopiedTypes<SplitVKernel>(registry,
                                  {.op = "SplitV", .host_args = {"size_splits", "split_dim"}});
  AddForCopiedTypes<PackKernel>(registry, {.op = "Pack"});
  AddForCopiedTypes<UnpackKernel>(registry, {.op = "Unpack"});
}

}  // namespace monograph::ops::concat
