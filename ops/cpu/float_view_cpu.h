// 16-bit floats compute in float: these turn tensors into float and back.
#pragma once

#include "executor/kernel.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops {

// `tensor` as float: itself, or a converted copy.
template <typename T>
Result<Tensor> ToFloat(KernelContext& c, const Tensor& tensor) {
  if constexpr (!kIs16Bit<T>) {
    return tensor;
  } else {
    MG_ASSIGN_OR_RETURN(Tensor out, c.AllocateTemp(DT_FLOAT, tensor.shape()));
    const T* in = tensor.data<T>();
    float* values = out.data<float>();
    c.ParallelFor(tensor.elements(), 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = static_cast<float>(in[i]);
    });
    return out;
  }
}

template <typename T>
void FromFloat(KernelContext& c, const Tensor& in, Tensor* out) {
  const float* values = in.data<float>();
  T* target = out->data<T>();
  c.ParallelFor(in.elements(), 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) target[i] = T(values[i]);
  });
}

}  // namespace monograph::ops
