// One value per channel added to all that a channel has, and a ReLU behind it if asked for: BiasAdd
// on a GPU, and what follows a product or a convolution that its library could not fuse with it.
#pragma once

#include <cstdint>

#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops {

// N elements per thread, which lie in one row (channels last) or in one plane (channels first).
template <typename T, int N, bool kPlanes>
struct AddBiasBody {
  using A = Accumulator<T>;
  Divisor inner, channels;  // in packs where packs run along them
  bool relu;
  const T *x, *bias;
  T* y;

  MG_HD T One(T value, T add) const {
    const A sum = static_cast<A>(Widen(value) + Widen(add));
    return Narrow<T>(relu && sum < A(0) ? A(0) : sum);
  }
  MG_HD void operator()(int64_t i) const {
    const auto in = LoadPack<T, N>(x + i * N);
    ElementPack<T, N> out;
    const int64_t row = kPlanes ? inner.Divide(i) : i;
    const int64_t k = row - channels.Divide(row) * channels.divisor();
    if constexpr (kPlanes) {
      const T add = bias[k];
      MG_UNROLL
      for (int v = 0; v < N; ++v) out.values[v] = One(in.values[v], add);
    } else {
      const auto add = LoadPack<T, N>(bias + k * N);
      MG_UNROLL
      for (int v = 0; v < N; ++v) out.values[v] = One(in.values[v], add.values[v]);
    }
    StorePack<T, N>(y + i * N, out);
  }
};

// `n` elements; `inner` of a channel lie together. x and y may be one. REQUIRES: channels >= 1.
template <typename T>
Status AddBias(KernelContext& c, int64_t n, int64_t inner, int64_t channels, bool relu, const T* x,
               const T* bias, T* y) {
  constexpr int kN = kWidth<T>;
  if (inner == 1) {
    if (channels % kN == 0 && Aligned({x, bias, y}))
      return ForEach(c, n / kN,
                     AddBiasBody<T, kN, false>{{}, Divisor(channels / kN), relu, x, bias, y});
    return ForEach(c, n, AddBiasBody<T, 1, false>{{}, Divisor(channels), relu, x, bias, y});
  }
  if (inner % kN == 0 && Aligned({x, y}))
    return ForEach(
        c, n / kN,
        AddBiasBody<T, kN, true>{Divisor(inner / kN), Divisor(channels), relu, x, bias, y});
  return ForEach(c, n,
                 AddBiasBody<T, 1, true>{Divisor(inner), Divisor(channels), relu, x, bias, y});
}

}  // namespace monograph::ops
