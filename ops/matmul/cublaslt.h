// Matrix products by cuBLASLt. One object per kernel: it keeps the algorithms of the shapes that it
// has met.
//
// For a shape that is new to the process the algorithms that cuBLASLt ranks highest are timed on
// the device, which the first run waits for, and the fastest is taken from then on;
// GpuOptions::algorithm_cache keeps what was found on disk, by device and version of cuBLASLt. With
// GpuOptions::deterministic the first of the ranking that always gives the same bits is taken,
// untimed.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/matmul/product.h"

namespace monograph::ops::matmul {

// `count` products of row-major matrices, the i-th of operands that lie i strides (in elements)
// further on; a stride of 0 repeats an operand.
struct CublasCall {
  Product product;
  DType dtype = DT_FLOAT;  // float, double, half or bfloat16
  int64_t count = 1, a_stride = 0, b_stride = 0;
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void* out = nullptr;
};

class Cublas {
 public:
  Cublas();
  ~Cublas();
  // Enqueues. Unimplemented, with nothing done, if cuBLASLt has no algorithm. A first run may write
  // `out` several times.
  // REQUIRES: m, n, k and count are at least 1; `out` lies where no operand does.
  Status Run(KernelContext& c, const CublasCall& call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph::ops::matmul
