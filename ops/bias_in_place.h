// After a product or a convolution with which a library could not fuse them: bias and activation.
#pragma once

#include <cstdint>

#include "ops/launch.h"

namespace monograph::ops {

template <typename T>
struct BiasInPlace {
  Divisor inner, channels;  // elements of a channel that lie together
  bool relu;
  const T* bias;
  T* y;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    const int64_t plane = inner.Divide(i);
    const int64_t k = plane - channels.Divide(plane) * channels.divisor();
    const A sum = Widen(y[i]) + Widen(bias[k]);
    y[i] = Narrow<T>(relu && sum < A(0) ? A(0) : sum);
  }
};

}  // namespace monograph::ops
