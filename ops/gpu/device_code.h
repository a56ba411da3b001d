// What device code and host code share: MG_HD, and 16-bit floats as both sides compute with them.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"

#ifdef __CUDACC__
#define MG_HD __host__ __device__
#else
#define MG_HD
#endif

// Before a loop of device code; the host's compiler, which does as it likes, would warn.
#ifdef __CUDA_ARCH__
#define MG_PRAGMA(text) _Pragma(#text)
#define MG_UNROLL MG_PRAGMA(unroll)
#define MG_UNROLL_BY(n) MG_PRAGMA(unroll n)
#else
#define MG_UNROLL
#define MG_UNROLL_BY(n)
#endif

namespace monograph::ops {

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

// The type in which T is computed with, and in which sums of T are kept.
template <typename T>
using Accumulator = std::conditional_t<kIs16Bit<T>, float, T>;

// A value as its Accumulator.
template <typename T>
MG_HD inline Accumulator<T> Widen(T x) {
  if constexpr (std::is_same_v<T, half>) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#else
    return x;
#endif
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
  } else {
    return x;
  }
}

// The nearest T, ties to even. On a GPU every NaN becomes 0x7fff.
template <typename T>
MG_HD inline T Narrow(Accumulator<T> x) {
  if constexpr (std::is_same_v<T, half>) {
#ifdef __CUDA_ARCH__
    T narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
    return narrow;
#else
    return T(x);
#endif
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    T narrow;
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    narrow.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u
                                            ? (bits >> 16) | 0x40u
                                            : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
    return narrow;
  } else {
    return x;
  }
}

// N consecutive elements, moved by one instruction where N of them are at most 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N) ElementPack {
  T values[N];
};

// Division by a number that is known when a kernel is launched: a multiplication and a shift for
// 31-bit dividends (T. Granlund and P. Montgomery, "Division by invariant integers using
// multiplication", PLDI 1994), the plain division for others.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(int64_t divisor) : divisor_(divisor) {  // REQUIRES: divisor >= 1
    if (divisor >> 31 != 0) return;
    while ((int64_t{1} << shift_) < divisor) ++shift_;
    const uint64_t excess = (uint64_t{1} << shift_) - static_cast<uint64_t>(divisor);
    magic_ = static_cast<uint32_t>((excess << 32) / static_cast<uint64_t>(divisor) + 1);
  }

  MG_HD int64_t divisor() const { return divisor_; }
  // REQUIRES: n >= 0.
  MG_HD int64_t Divide(int64_t n) const {
    if (n >> 31 != 0 || magic_ == 0) return n / divisor_;
    const auto small = static_cast<uint32_t>(n);
    const auto high = static_cast<uint32_t>((uint64_t{small} * magic_) >> 32);
    return (high + small) >> shift_;
  }

 private:
  int64_t divisor_ = 1;
  uint32_t magic_ = 0;  // 0: too large for the fast way
  uint32_t shift_ = 0;
};

}  // namespace monograph::ops
