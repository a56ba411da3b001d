// 16-bit floats compute in float: these turn tensors into float and back.
#pragma once

#include <type_traits>

#include "base/dtype.h"
#include "executor/kernel.h"

namespace monograph::ops {

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

// The type in which sums of T are kept.
template <typename T>
using Accumulator = std::conditional_t<kIs16Bit<T>, float, T>;

// `tensor` as float: itself, or a converted copy.
template <typename T>
Result<Tensor> ToFloat(KernelContext& c, const Tensor& tensor) {
  if constexpr (!kIs16Bit<T>) {
    return tensor;
  } else {
    MG_ASSIGN_OR_RETURN(Tensor out, c.AllocateTemp(DT_FLOAT, tensor.shape()));
    const T* in = tensor.data<T>();
    float* values = out.data<float>();
    for (int64_t i = 0; i < tensor.elements(); ++i) values[i] = static_cast<float>(in[i]);
    return out;
  }
}

template <typename T>
void FromFloat(const Tensor& in, Tensor* out) {
  const float* values = in.data<float>();
  T* target = out->data<T>();
  for (int64_t i = 0; i < in.elements(); ++i) target[i] = T(values[i]);
}

}  // namespace monograph::ops
