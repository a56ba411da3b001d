// Element types by list and by number, for kernels that are compiled for many.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "ops/cpu/copy_elements_cpu.h"
#include "ops/cpu/kernel_util.h"

namespace monograph {

// All types that can be added and compared.
#define MG_REAL_TYPES(M) \
  MG_NUMBER_TYPES(M) M(uint8_t) M(int8_t) M(int16_t) M(uint16_t) M(uint32_t) M(uint64_t)

inline constexpr DType kFloatTypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16};
inline constexpr DType kIndexTypes[] = {DT_INT32, DT_INT64};
inline constexpr DType kRealTypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF,   DT_BFLOAT16,
                                       DT_INT32, DT_INT64,  DT_UINT8,  DT_INT8,
                                       DT_INT16, DT_UINT16, DT_UINT32, DT_UINT64};

// fn(T{}) with the type of the number: WithRealType(dtype, [&](auto t) { using T = decltype(t);
// ...; return Status(); })
template <typename Fn>
Status WithRealType(DType dtype, const Fn& fn) {
  switch (dtype) {
#define MG_CASE(T)  \
  case kDTypeOf<T>: \
    return fn(T{});
    MG_REAL_TYPES(MG_CASE)
#undef MG_CASE
    default:
      return Unimplemented("no kernel for elements of type " + std::string(DTypeName(dtype)));
  }
}

template <typename Fn>
Status WithFloatType(DType dtype, const Fn& fn) {
  switch (dtype) {
#define MG_CASE(T)  \
  case kDTypeOf<T>: \
    return fn(T{});
    MG_FLOAT_TYPES(MG_CASE)
#undef MG_CASE
    default:
      return Unimplemented("no kernel for elements of type " + std::string(DTypeName(dtype)));
  }
}

// fn(the integers of a tensor of int32 or int64, as a span of their own type)
template <typename Fn>
auto WithIndices(const Tensor& indices, const Fn& fn) {
  if (indices.dtype() == DT_INT32) return fn(indices.values<int32_t>());
  return fn(indices.values<int64_t>());
}

// Element i of a tensor of int32 or int64.
inline int64_t IndexAt(const Tensor& indices, int64_t i) {
  return indices.dtype() == DT_INT32 ? indices.data<int32_t>()[i] : indices.data<int64_t>()[i];
}
inline void SetIndex(Tensor* indices, int64_t i, int64_t value) {
  if (indices->dtype() == DT_INT32) {
    indices->data<int32_t>()[i] = static_cast<int32_t>(value);
  } else {
    indices->data<int64_t>()[i] = value;
  }
}

// A kernel that is one function of its inputs and the node's attributes.
template <Status (*kCompute)(KernelContext&, const Attrs&)>
class FunctionKernel : public Kernel {
 public:
  explicit FunctionKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override { return kCompute(c, attrs_); }

 private:
  const Attrs attrs_;
};

}  // namespace monograph
