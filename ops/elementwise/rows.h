// Loops over functors, and the kernels made of them. A row function handles consecutive elements;
// the kernels know of shapes but not of types, so that each op and type costs one small loop.
#pragma once

#include <cstdint>
#include <string>

#include "base/independent_loop.h"
#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"

namespace monograph::ops::elementwise {

// Which operands of a row move on; the other one stays at its first element.
enum class RowMode { kBoth, kFirstStays, kSecondStays };

using BinaryRowFn = void (*)(const void* x, const void* y, void* z, int64_t n, RowMode mode);
using UnaryRowFn = void (*)(const void* x, void* y, int64_t n);
// Refuses operands before any element is computed (a division by zero).
using CheckFn = Status (*)(const Tensor& x, const Tensor& y);

// The output may be the same memory as an operand that moves on: element k is read before it is
// written.
template <typename T, typename Fn>
void BinaryRow(const void* x, const void* y, void* z, int64_t n, RowMode mode) {
  using Out = typename Fn::Out;
  const T *a = static_cast<const T*>(x), *b = static_cast<const T*>(y);
  Out* out = static_cast<Out*>(z);
  const Fn fn;
  if (mode == RowMode::kBoth) {
    MG_INDEPENDENT_LOOP
    for (int64_t i = 0; i < n; ++i) out[i] = fn(a[i], b[i]);
  } else if (mode == RowMode::kFirstStays) {
    const T first = *a;
    MG_INDEPENDENT_LOOP
    for (int64_t i = 0; i < n; ++i) out[i] = fn(first, b[i]);
  } else {
    const T second = *b;
    MG_INDEPENDENT_LOOP
    for (int64_t i = 0; i < n; ++i) out[i] = fn(a[i], second);
  }
}

template <typename T, typename Fn>
void UnaryRow(const void* x, void* y, int64_t n) {
  const T* in = static_cast<const T*>(x);
  typename Fn::Out* out = static_cast<typename Fn::Out*>(y);
  const Fn fn;
  MG_INDEPENDENT_LOOP
  for (int64_t i = 0; i < n; ++i) out[i] = fn(in[i]);
}

inline constexpr int64_t kRowChunk = 256;

// 16-bit floats: by way of floats, a chunk at a time. Fn is the functor for float.
template <typename T16, typename Fn>
void BinaryRow16(const void* x, const void* y, void* z, int64_t n, RowMode mode) {
  using Out = typename Fn::Out;
  const T16 *a = static_cast<const T16*>(x), *b = static_cast<const T16*>(y);
  float a_wide[kRowChunk], b_wide[kRowChunk];
  if (mode == RowMode::kFirstStays) a_wide[0] = *a;
  if (mode == RowMode::kSecondStays) b_wide[0] = *b;
  for (int64_t i = 0; i < n; i += kRowChunk) {
    const int64_t count = std::min(kRowChunk, n - i);
    if (mode != RowMode::kFirstStays) ToFloats(a + i, a_wide, count);
    if (mode != RowMode::kSecondStays) ToFloats(b + i, b_wide, count);
    if constexpr (std::is_same_v<Out, bool>) {
      BinaryRow<float, Fn>(a_wide, b_wide, static_cast<bool*>(z) + i, count, mode);
    } else {
      float z_wide[kRowChunk];
      BinaryRow<float, Fn>(a_wide, b_wide, z_wide, count, mode);
      FromFloats(z_wide, static_cast<T16*>(z) + i, count);
    }
  }
}

template <typename T16, typename Fn>
void UnaryRow16(const void* x, void* y, int64_t n) {
  using Out = typename Fn::Out;
  const T16* in = static_cast<const T16*>(x);
  float wide[kRowChunk];
  for (int64_t i = 0; i < n; i += kRowChunk) {
    const int64_t count = std::min(kRowChunk, n - i);
    ToFloats(in + i, wide, count);
    if constexpr (std::is_same_v<Out, bool>) {
      UnaryRow<float, Fn>(wide, static_cast<bool*>(y) + i, count);
    } else {
      UnaryRow<float, Fn>(wide, wide, count);
      FromFloats(wide, static_cast<T16*>(y) + i, count);
    }
  }
}

template <typename T>
inline constexpr bool kIs16 = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

template <template <typename> typename Fn, typename T>
constexpr BinaryRowFn BinaryRowFor() {
  if constexpr (kIs16<T>) {
    return &BinaryRow16<T, Fn<float>>;
  } else {
    return &BinaryRow<T, Fn<T>>;
  }
}
template <template <typename> typename Fn, typename T>
constexpr UnaryRowFn UnaryRowFor() {
  if constexpr (kIs16<T>) {
    return &UnaryRow16<T, Fn<float>>;
  } else {
    return &UnaryRow<T, Fn<T>>;
  }
}

class BinaryKernel : public Kernel {
 public:
  BinaryKernel(const KernelConstruction& k, BinaryRowFn row, int64_t cost, CheckFn check);
  Status Compute(KernelContext& c) override;

 private:
  Status Broadcast(KernelContext& c, const Shape& x, const Shape& y, const Shape& z, Tensor* out);
  // row_, with looks at cancellation.
  void Row(const KernelContext& c, const char* x, const char* y, char* z, int64_t n,
           RowMode mode) const;
  const BinaryRowFn row_;
  const CheckFn check_;
  const int64_t cost_;  // of 16 elements, in ns
  const size_t in_size_, out_size_;
  const bool differ_where_shapes_differ_;  // NotEqual with incompatible_shape_error = false
  const bool equality_without_error_;
};

class UnaryKernel : public Kernel {
 public:
  UnaryKernel(const KernelConstruction& k, UnaryRowFn row, int64_t cost);
  Status Compute(KernelContext& c) override;

 private:
  const UnaryRowFn row_;
  const int64_t cost_;  // of 16 elements, in ns
  const size_t in_size_, out_size_;
};

template <BinaryRowFn kRow, int64_t kCost, CheckFn kCheck>
Result<std::unique_ptr<Kernel>> MakeBinary(const KernelConstruction& k) {
  return std::unique_ptr<Kernel>(new BinaryKernel(k, kRow, kCost, kCheck));
}
template <UnaryRowFn kRow, int64_t kCost>
Result<std::unique_ptr<Kernel>> MakeUnary(const KernelConstruction& k) {
  return std::unique_ptr<Kernel>(new UnaryKernel(k, kRow, kCost));
}

// Registers the functor for each type of the list; costs are those of 16 elements, in ns.
template <template <typename> typename Fn, int64_t kCost, CheckFn kCheck, typename... Ts>
void AddBinary(KernelRegistry* registry, const char* op) {
  (registry->Add({.op = op, .types = {{"T", kDTypeOf<Ts>}}},
                 &MakeBinary<BinaryRowFor<Fn, Ts>(), kCost, kCheck>),
   ...);
}
template <template <typename> typename Fn, int64_t kCost, typename... Ts>
void AddUnary(KernelRegistry* registry, const char* op) {
  (registry->Add({.op = op, .types = {{"T", kDTypeOf<Ts>}}},
                 &MakeUnary<UnaryRowFor<Fn, Ts>(), kCost>),
   ...);
}

Status CheckDivisor(const Tensor& x, const Tensor& y);   // integers: none is 0
Status CheckExponent(const Tensor& x, const Tensor& y);  // signed integers: none is negative

// Each in a file of its own, so that they compile in parallel.
void RegisterArithmetic(KernelRegistry* registry);
void RegisterDivision(KernelRegistry* registry);
void RegisterComparisons(KernelRegistry* registry);
void RegisterUnary(KernelRegistry* registry);
void RegisterFunctions(KernelRegistry* registry);
void RegisterSpecialFunctions(KernelRegistry* registry);
void RegisterBesselFunctions(KernelRegistry* registry);
void RegisterBitwise(KernelRegistry* registry);
void RegisterClipAndCross(KernelRegistry* registry);
void RegisterChains(KernelRegistry* registry);

}  // namespace monograph::ops::elementwise
