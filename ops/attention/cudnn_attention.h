// Attention by cuDNN's fused kernels.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/attention/sizes.h"

namespace monograph::ops::attention {

struct CudnnCall {
  bool backward = false;
  DType dtype = DT_BFLOAT16;
  Sizes sizes;
  float scale = 1;
  const void *query = nullptr, *key = nullptr, *value = nullptr;
  // Written forward, read backward.
  void *output = nullptr, *statistics = nullptr;
  // Backward.
  const void* gradient = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  // With sizes.with_lengths, on the device, [n]: how many rows of each sequence there are, and how
  // many columns, at least 1. What lies past them is not written, and may hold anything.
  const int32_t *row_counts = nullptr, *lengths = nullptr;
};

// What one kernel keeps: plans for the sizes that it has met. Thread-safe.
class CudnnAttention {
 public:
  CudnnAttention();
  ~CudnnAttention();
  // Enqueues the call, of 16-bit floats. Unimplemented if cuDNN has no engine for it; a warning
  // says so, once for the sizes.
  Status Run(KernelContext& c, const CudnnCall& call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace monograph::ops::attention
