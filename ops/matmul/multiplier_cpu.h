// Matrix products on CPUs, for the kernels of this folder.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/matmul/product.h"

namespace monograph::ops::matmul {

// out = op(a) op(b), and what is fused to it. Belongs to one kernel, keeps what it made for each
// shape, and is thread-safe. T: float, which goes to oneDNN; double, int32_t, int64_t.
template <typename T>
class Multiplier {
 public:
  Multiplier();
  ~Multiplier();
  Status Run(KernelContext& c, const Product& p, const T* a, const T* b, const T* bias, T* out);

 private:
  struct Float;
  std::unique_ptr<Float> float_;
};

void RegisterEinsum(KernelRegistry* registry);

}  // namespace monograph::ops::matmul
