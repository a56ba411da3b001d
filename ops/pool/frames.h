// The kernel classes of pooling, for any device: attributes, shapes and what inputs must be. A
// pass computes; it has `Type`, and a kernel keeps one for all its runs.
#pragma once

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/pool/geometry.h"

namespace monograph::ops::pool {

// Where the windows lie: by attributes, or, of the second versions, by inputs kAt and kAt + 1.
template <int kAt>
Result<Geometry> PlaceFor(KernelContext& c, const Attrs& attrs, const Shape& shape) {
  if constexpr (kAt < 0) {
    return Place(attrs, shape);
  } else {
    Attrs all = attrs;
    for (int i : {0, 1}) {
      const char* name = i == 0 ? "ksize" : "strides";
      MG_ASSIGN_OR_RETURN(const SmallInts values, IntsOf(c.input(kAt + i), name));
      all.Set(name, std::vector<int64_t>(values.span().begin(), values.span().end()));
    }
    return Place(all, shape);
  }
}

// Pass::Run(c, geometry, x, y).
template <typename Pass, int kAt = -1>
class ForwardKernel : public Kernel {
 public:
  explicit ForwardKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    using T = typename Pass::Type;
    MG_ASSIGN_OR_RETURN(const Geometry g, PlaceFor<kAt>(c, attrs_, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, g.pooled_shape));
    if (out->elements() == 0) return Status();
    return pass_.Run(c, g, c.input(0).data<T>(), out->data<T>());
  }

 private:
  const Attrs attrs_;
  Pass pass_;
};

// MaxPoolGrad. Pass::Run(c, geometry, x, y, dy, dx).
template <typename Pass, int kAt = -1>
class MaxGradKernel : public Kernel {
 public:
  explicit MaxGradKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    using T = typename Pass::Type;
    MG_ASSIGN_OR_RETURN(const Geometry g, PlaceFor<kAt>(c, attrs_, c.input(0).shape()));
    MG_RETURN_IF_ERROR(RequireShape(c.input(1), g.pooled_shape, "the pooled output"));
    MG_RETURN_IF_ERROR(RequireShape(c.input(2), g.pooled_shape, "the gradient"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(0).shape()));
    if (out->elements() == 0) return Status();
    return pass_.Run(c, g, c.input(0).data<T>(), c.input(1).data<T>(), c.input(2).data<T>(),
                     out->data<T>());
  }

 private:
  const Attrs attrs_;
  Pass pass_;
};

// MaxPoolGradGrad. Pass::Run(c, geometry, x, y, gradient of dx, gradient of dy).
template <typename Pass, int kAt = -1>
class MaxGradGradKernel : public Kernel {
 public:
  explicit MaxGradGradKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    using T = typename Pass::Type;
    MG_ASSIGN_OR_RETURN(const Geometry g, PlaceFor<kAt>(c, attrs_, c.input(0).shape()));
    MG_RETURN_IF_ERROR(RequireShape(c.input(1), g.pooled_shape, "the pooled output"));
    MG_RETURN_IF_ERROR(RequireShape(c.input(2), c.input(0).shape(), "the gradient"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, g.pooled_shape));
    if (out->elements() == 0) return Status();
    return pass_.Run(c, g, c.input(0).data<T>(), c.input(1).data<T>(), c.input(2).data<T>(),
                     out->data<T>());
  }

 private:
  const Attrs attrs_;
  Pass pass_;
};

// AvgPoolGrad. Pass::Run(c, geometry, dy, tensor for dx).
template <typename Pass>
class AverageGradKernel : public Kernel {
 public:
  explicit AverageGradKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    using T = typename Pass::Type;
    MG_ASSIGN_OR_RETURN(const Shape shape, ImageShape(c.input(0)));
    MG_ASSIGN_OR_RETURN(const Geometry g, Place(attrs_, shape));
    MG_RETURN_IF_ERROR(RequireShape(c.input(1), g.pooled_shape, "the gradient"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    return pass_.Run(c, g, c.input(1).data<T>(), out);
  }

 private:
  const Attrs attrs_;
  Pass pass_;
};

}  // namespace monograph::ops::pool
