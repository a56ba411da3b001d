// Elementwise kernels of GPUs: bodies over functors (functors.h), one thread for a pack of
// consecutive elements, 16 bytes wide where addresses allow it. One small body for each op and
// type; the rest of a kernel is in ops/elementwise/kernels_cuda.h.
#pragma once

#include <cstdint>

#include "executor/kernel.h"
#include "ops/elementwise/kernels_cuda.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops::elementwise {

// Elements that one thread handles: 16 bytes of the wider type.
template <typename In, typename Out>
inline constexpr int kPackOf = 16 / static_cast<int>(sizeof(In) > sizeof(Out) ? sizeof(In)
                                                                              : sizeof(Out));

template <typename T, typename Fn>
struct BinaryBody {
  using Out = std::conditional_t<std::is_same_v<typename Fn::Out, bool>, bool, T>;
  static constexpr int kPack = kPackOf<T, Out>;
  BinaryArgs args;

  MG_HD static Out One(T x, T y) {
    if constexpr (std::is_same_v<Out, bool>) {
      return Fn()(Widen(x), Widen(y));
    } else {
      return Narrow<T>(Fn()(Widen(x), Widen(y)));
    }
  }
  MG_HD void operator()(int64_t group) const {
    const T *x = static_cast<const T*>(args.x), *y = static_cast<const T*>(args.y);
    Out* z = static_cast<Out*>(args.z);
    const int64_t first = group * kPack;
    int64_t x_at, y_at;
    if (args.packs && first + kPack <= args.n) {
      args.Offsets(first, &x_at, &y_at);
      ElementPack<T, kPack> a, b;
      ElementPack<Out, kPack> out;
      Load(x + x_at, args.x_step, &a);
      Load(y + y_at, args.y_step, &b);
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) out.values[k] = One(a.values[k], b.values[k]);
      StorePack<Out, kPack>(z + first, out);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < args.n; ++i) {
      args.Offsets(i, &x_at, &y_at);
      z[i] = One(x[x_at], y[y_at]);
    }
  }

 private:
  MG_HD static void Load(const T* from, int64_t step, ElementPack<T, kPack>* pack) {
    if (step != 0) {
      *pack = LoadPack<T, kPack>(from);
      return;
    }
    const T value = *from;
    MG_UNROLL
    for (int k = 0; k < kPack; ++k) pack->values[k] = value;
  }
};

template <typename T, typename Fn>
struct UnaryBody {
  using Out = std::conditional_t<std::is_same_v<typename Fn::Out, bool>, bool, T>;
  static constexpr int kPack = kPackOf<T, Out>;
  UnaryArgs args;

  MG_HD static Out One(T x) {
    if constexpr (std::is_same_v<Out, bool>) {
      return Fn()(Widen(x));
    } else {
      return Narrow<T>(Fn()(Widen(x)));
    }
  }
  MG_HD void operator()(int64_t group) const {
    const T* x = static_cast<const T*>(args.x);
    Out* y = static_cast<Out*>(args.y);
    const int64_t first = group * kPack;
    if (args.packs && first + kPack <= args.n) {
      const auto in = LoadPack<T, kPack>(x + first);
      ElementPack<Out, kPack> out;
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) out.values[k] = One(in.values[k]);
      StorePack<Out, kPack>(y + first, out);
      return;
    }
    for (int64_t i = first; i < first + kPack && i < args.n; ++i) y[i] = One(x[i]);
  }
};

template <typename T, typename Fn>
Status LaunchBinary(KernelContext& c, const BinaryArgs& args) {
  constexpr int64_t kPack = BinaryBody<T, Fn>::kPack;
  return ForEach(c, (args.n + kPack - 1) / kPack, BinaryBody<T, Fn>{args});
}
template <typename T, typename Fn>
Status LaunchUnary(KernelContext& c, const UnaryArgs& args) {
  constexpr int64_t kPack = UnaryBody<T, Fn>::kPack;
  return ForEach(c, (args.n + kPack - 1) / kPack, UnaryBody<T, Fn>{args});
}

// The functor for T, or for float if T has 16 bits.
template <template <typename> typename Fn, typename T>
using FunctorOf = Fn<Accumulator<T>>;

template <template <typename> typename Fn, typename T>
Result<std::unique_ptr<Kernel>> MakeDeviceBinary(const KernelConstruction& k) {
  return std::unique_ptr<Kernel>(new DeviceBinaryKernel(k, &LaunchBinary<T, FunctorOf<Fn, T>>));
}
template <template <typename> typename Fn, typename T>
Result<std::unique_ptr<Kernel>> MakeDeviceUnary(const KernelConstruction& k) {
  return std::unique_ptr<Kernel>(new DeviceUnaryKernel(k, &LaunchUnary<T, FunctorOf<Fn, T>>));
}

template <template <typename> typename Fn, typename... Ts>
void AddDeviceBinary(KernelRegistry* registry, const char* op) {
  (registry->Add({.op = op, .device = kGpu, .types = {{"T", kDTypeOf<Ts>}}},
                 &MakeDeviceBinary<Fn, Ts>),
   ...);
}
template <template <typename> typename Fn, typename... Ts>
void AddDeviceUnary(KernelRegistry* registry, const char* op) {
  (registry->Add({.op = op, .device = kGpu, .types = {{"T", kDTypeOf<Ts>}}},
                 &MakeDeviceUnary<Fn, Ts>),
   ...);
}

}  // namespace monograph::ops::elementwise
