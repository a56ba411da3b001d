// Vectors of 16 floats, for the sources behind avx512.h and conv/avx512_tiles.h alone.
//
// All that is instantiated in those must stay there: code for AVX-512 that the linker took for
// another file's would fail on other processors. So everything is in a namespace without a name,
// and no containers or algorithms of the standard library are used.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "ops/avx512.h"

namespace monograph::ops::avx512 {
namespace {

using V = __m512;

#define MG_INLINE [[gnu::always_inline]] inline

MG_INLINE V Zero() { return _mm512_setzero_ps(); }

// fn(0), ..., fn(N - 1) with constants, so that arrays of vectors live in registers.
template <int N, typename Fn>
MG_INLINE void Repeat(const Fn& fn) {
  [&]<int... kI>(std::integer_sequence<int, kI...>) __attribute__((always_inline)) {
    (fn(std::integral_constant<int, kI>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Becomes NaN with the first number that is not finite.
class FiniteCheck {
 public:
  MG_INLINE void Look(V x) { sum_ = _mm512_fmadd_ps(x, Zero(), sum_); }
  MG_INLINE bool ok() const { return _mm512_cmp_ps_mask(sum_, sum_, _CMP_ORD_Q) == 0xffff; }

 private:
  V sum_ = Zero();
};

// max(0, x), where a NaN stays one.
MG_INLINE V Relu(V x) { return _mm512_max_ps(Zero(), x); }

MG_INLINE V Load(const float* from) { return _mm512_loadu_ps(from); }
MG_INLINE void Store(float* to, V x) { _mm512_storeu_ps(to, x); }
MG_INLINE V Set(float x) { return _mm512_set1_ps(x); }
MG_INLINE V Add(V x, V y) { return _mm512_add_ps(x, y); }
MG_INLINE V Sub(V x, V y) { return _mm512_sub_ps(x, y); }
MG_INLINE V Mul(float x, V y) { return _mm512_mul_ps(Set(x), y); }
MG_INLINE V MulAdd(float x, V y, V z) { return _mm512_fmadd_ps(Set(x), y, z); }   // z + x y
MG_INLINE V MulSub(float x, V y, V z) { return _mm512_fnmadd_ps(Set(x), y, z); }  // z - x y

}  // namespace
}  // namespace monograph::ops::avx512
