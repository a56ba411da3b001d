// Kernels of ops about shapes. Those that only relabel (Reshape, ExpandDims, Squeeze) pass their
// input on under another shape, without a copy. Almost all are registered as cheap, so that the
// executor runs them where they become ready and does not hand them to another thread.
#include <algorithm>

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/dims.h"
#include "ops/shape/broadcast_to.h"

namespace monograph::ops::shape {
namespace {

Status WriteInts(KernelContext& c, int output, std::span<const int64_t> values) {
  MG_ASSIGN_OR_RETURN(Tensor * out,
                      c.AllocateOutput(output, Shape{static_cast<int64_t>(values.size())}));
  if (out->dtype() == DT_INT32) {
    for (size_t i = 0; i < values.size(); ++i)
      out->data<int32_t>()[i] = static_cast<int32_t>(values[i]);
  } else {
    std::copy(values.begin(), values.end(), out->data<int64_t>());
  }
  return Status();
}

Status WriteInt(KernelContext& c, int64_t value) {
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
  if (out->dtype() == DT_INT32) {
    *out->data<int32_t>() = static_cast<int32_t>(value);
  } else {
    *out->data<int64_t>() = value;
  }
  return Status();
}

class ShapeKernel : public Kernel {  // also ShapeN
 public:
  explicit ShapeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    for (int i = 0; i < c.num_inputs(); ++i)
      MG_RETURN_IF_ERROR(WriteInts(c, i, c.input(i).shape().dims()));
    return Status();
  }
};

class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override { return WriteInt(c, c.input(0).elements()); }
};

class RankKernel : public Kernel {
 public:
  explicit RankKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override { return WriteInt(c, c.input(0).shape().rank()); }
};

class ReshapeKernel : public Kernel {
 public:
  explicit ReshapeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(SmallInts dims, IntsOf(c.input(1), "the shape"));
    const int64_t elements = c.input(0).elements();
    int open = -1;
    int64_t product = 1;  // of the dimensions that are given and not 0
    bool has_zero = false;
    for (int i = 0; i < dims.size(); ++i) {
      if (dims[i] == -1) {
        if (open >= 0) return InvalidArgument("only one dimension of the shape may be -1");
        open = i;
      } else if (dims[i] < 0) {
        return InvalidArgument("dimension " + std::to_string(i) + " of the shape is " +
                               std::to_string(dims[i]));
      } else if (dims[i] == 0) {
        has_zero = true;
      } else if (__builtin_mul_overflow(product, dims[i], &product)) {
        return InvalidArgument("the shape has too many elements");
      }
    }
    if (open >= 0) {
      // Where the shape has a 0, zeros are left out of the count on both sides: [0, 3] to [0, -1]
      // is [0, 3].
      int64_t counted = 1;
      bool left_out = false;
      for (int64_t dim : c.input(0).shape().dims()) {
        if (dim == 0 && has_zero) {
          left_out = true;
        } else if (__builtin_mul_overflow(counted, dim, &counted)) {
          return InvalidArgument("the input has too many elements");
        }
      }
      if (!left_out && counted % product != 0) {
        return InvalidArgument("cannot reshape a tensor of shape " + c.input(0).shape().ToString() +
                               " to a multiple of " + std::to_string(product) + " elements");
      }
      dims[open] = counted / product;
    }
    MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims.span()));
    if (shape.elements() != elements) {
      return InvalidArgument("cannot reshape a tensor of shape " + c.input(0).shape().ToString() +
                             ", which has " + std::to_string(elements) + " elements, to " +
                             shape.ToString() + ", which has " + std::to_string(shape.elements()));
    }
    c.set_output(0, c.TakeInput(0).Reshaped(shape));
    return Status();
  }
};

class ExpandDimsKernel : public Kernel {
 public:
  explicit ExpandDimsKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape& in = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(1), in.rank() + 1));
    if (in.rank() == kMaxRank) return TooManyDimensions();
    Shape out;
    for (int i = 0; i <= in.rank(); ++i) out.AddDim(i == axis ? 1 : in.dim(i < axis ? i : i - 1));
    c.set_output(0, c.TakeInput(0).Reshaped(out));
    return Status();
  }
};

class SqueezeKernel : public Kernel {
 public:
  explicit SqueezeKernel(const KernelConstruction& k)
      : axes_(k.attrs().GetOr<std::vector<int64_t>>("squeeze_dims", {})) {}
  Status Compute(KernelContext& c) override {
    const Shape in = c.input(0).shape();
    std::array<bool, kMaxRank> gone{};
    for (int64_t axis : axes_) {
      const int64_t at = axis < 0 ? axis + in.rank() : axis;
      if (at < 0 || at >= in.rank()) {
        return InvalidArgument("cannot squeeze dimension " + std::to_string(axis) + " of " +
                               in.ToString());
      }
      if (in.dim(static_cast<int>(at)) != 1) {
        return InvalidArgument("cannot squeeze dimension " + std::to_string(at) + " of " +
                               in.ToString() + ": it is not 1");
      }
      gone[static_cast<size_t>(at)] = true;
    }
    Shape out;
    for (int i = 0; i < in.rank(); ++i) {
      if (axes_.empty() ? in.dim(i) != 1 : !gone[static_cast<size_t>(i)]) out.AddDim(in.dim(i));
    }
    c.set_output(0, c.TakeInput(0).Reshaped(out));
    return Status();
  }

 private:
  const std::vector<int64_t> axes_;
};

class BroadcastArgsKernel : public Kernel {
 public:
  explicit BroadcastArgsKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape a, ShapeFrom(c.input(0), "s0"));
    MG_ASSIGN_OR_RETURN(const Shape b, ShapeFrom(c.input(1), "s1"));
    MG_ASSIGN_OR_RETURN(const Shape shape, BroadcastShapes(a, b));
    return WriteInts(c, 0, shape.dims());
  }
};

class BroadcastGradientArgsKernel : public Kernel {
 public:
  explicit BroadcastGradientArgsKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    std::array<Shape, 2> shapes;
    for (int i = 0; i < 2; ++i) {
      MG_ASSIGN_OR_RETURN(shapes[static_cast<size_t>(i)],
                          ShapeFrom(c.input(i), i == 0 ? "s0" : "s1"));
    }
    MG_RETURN_IF_ERROR(BroadcastShapes(shapes[0], shapes[1]).status());
    if (shapes[0] == shapes[1]) {
      MG_RETURN_IF_ERROR(WriteInts(c, 0, {}));
      return WriteInts(c, 1, {});
    }
    const int rank = std::max(shapes[0].rank(), shapes[1].rank());
    for (size_t i = 0; i < 2; ++i) {
      const Shape& mine = shapes[i];
      const int lead = rank - mine.rank();
      SmallInts axes;
      for (int d = 0; d < rank; ++d) {
        if (d < lead || mine.dim(d - lead) == 1)
          axes.push_back(d);  // as TensorFlow: also where both are 1
      }
      MG_RETURN_IF_ERROR(WriteInts(c, static_cast<int>(i), axes.span()));
    }
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr auto kCheap = KernelCost::kCheap;
  registry->Add<ShapeKernel>({.op = "Shape", .host_args = {"output"}, .cost = kCheap});
  registry->Add<ShapeKernel>({.op = "ShapeN", .host_args = {"output"}, .cost = kCheap});
  registry->Add<SizeKernel>({.op = "Size", .host_args = {"output"}, .cost = kCheap});
  registry->Add<RankKernel>({.op = "Rank", .host_args = {"output"}, .cost = kCheap});
  registry->Add<ReshapeKernel>({.op = "Reshape", .host_args = {"shape"}, .cost = kCheap});
  registry->Add<ExpandDimsKernel>({.op = "ExpandDims", .host_args = {"dim"}, .cost = kCheap});
  registry->Add<SqueezeKernel>({.op = "Squeeze", .cost = kCheap});
  registry->Add<BroadcastArgsKernel>(
      {.op = "BroadcastArgs", .host_args = {"s0", "s1", "r0"}, .cost = kCheap});
  registry->Add<BroadcastGradientArgsKernel>(
      {.op = "BroadcastGradientArgs", .host_args = {"s0", "s1", "r0", "r1"}, .cost = kCheap});
  AddForPlainTypes<BroadcastToKernel<HostMoves>>(registry,
                                                 {.op = "BroadcastTo", .host_args = {"shape"}});
}

}  // namespace monograph::ops::shape
