// Loops in AVX-512: products of matrices that lie in registers, for kernels that are made of them.
//
// The sources behind this header and conv/avx512_tiles.h are the only ones that are compiled for
// AVX-512: nothing here may be called unless Supported(). All pointers are to floats.
#pragma once

#include <cstdint>

namespace monograph::ops::avx512 {

// In a vector.
inline constexpr int64_t kLanes = 16;
// Whether this processor has what Multiply and the others need.
bool Supported();

// c = a b (or c += a b), where a product is summed up over `outer` blocks of `depth` terms:
//   c[i, j] = sum over o, k of a[o a_outer + i a_row + k a_step] * b[o b_outer + k b_step + j]
struct Product {
  int64_t rows, columns;  // of c; columns are a multiple of kLanes
  int64_t outer = 1, depth;
  const float* a;
  int64_t a_outer = 0, a_row, a_step;
  const float* b;
  int64_t b_outer = 0, b_step;
  float* c;
  int64_t c_row;
  bool accumulate = false;
  const float* bias = nullptr;  // of each column, or null
  bool relu = false;            // a NaN stays one
  bool check = false;
};
// With `check`: whether all numbers were finite (before the ReLU); else true.
bool Multiply(const Product& p);

}  // namespace monograph::ops::avx512
