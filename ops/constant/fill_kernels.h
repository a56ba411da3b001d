// Fill, ZerosLike and OnesLike, for any device (ops/gpu/moves.h).
#pragma once

#include "executor/kernel.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::constant {

template <typename Moves>
class FillKernel : public Kernel {
 public:
  explicit FillKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(0), "dims"));
    const Tensor& value = c.input(1);
    if (value.shape().rank() != 0) {
      return InvalidArgument("the value must be a scalar, not of shape " +
                             value.shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    StridedSpace space;
    space.Add(shape.elements(), 0, 1);
    return Moves::Strided(c, DTypeSize(value.dtype()), value.raw(), out->raw(), space);
  }
};

template <typename Moves>
class ZerosLikeKernel : public Kernel {
 public:
  explicit ZerosLikeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    return Moves::Zero(c, out->raw(), out->bytes());
  }
};

template <typename Moves>
class OnesLikeKernel : public Kernel {
 public:
  explicit OnesLikeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, c.input(0).shape()));
    const float one_float = 1;
    const double one_double = 1;
    const float one_complex64[] = {1, 0};
    const double one_complex128[] = {1, 0};
    const half one_half(1.0f);
    const bfloat16 one_bfloat16(1.0f);
    const uint64_t one = 1;  // little-endian: also the first bytes of any smaller integer
    const void* value = &one;
    switch (out->dtype()) {
      case DT_FLOAT:
        value = &one_float;
        break;
      case DT_DOUBLE:
        value = &one_double;
        break;
      case DT_COMPLEX64:
        value = one_complex64;
        break;
      case DT_COMPLEX128:
        value = one_complex128;
        break;
      case DT_HALF:
        value = &one_half;
        break;
      case DT_BFLOAT16:
        value = &one_bfloat16;
        break;
      default:
        break;
    }
    return Moves::Fill(c, DTypeSize(out->dtype()), value, out->raw(), out->elements());
  }
};

}  // namespace monograph::ops::constant
