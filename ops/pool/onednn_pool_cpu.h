// Pooling by oneDNN, where bench/pool_bench.cc shows that it is not slower than our loops.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/window.h"

namespace monograph::ops::pool {

// The windows of one pass over images of floats.
struct PoolPass {
  enum Kind { kMax, kMaxGradient, kAverage, kAverageGradient };
  Kind kind;
  bool nchw;
  int64_t images, channels;
  Window rows, columns;
};

// Belongs to one kernel; keeps what it made for each shape. Thread-safe.
class OnednnPool {
 public:
  OnednnPool();
  ~OnednnPool();
  // `image` and `pooled` are what the pass reads and writes, whichever is which. kMaxGradient reads
  // both, `pooled` being the gradient, and writes `image_gradient`: it computes anew where each
  // maximum was, the first one of equals. Unimplemented for windows that oneDNN does not do.
  Status Run(KernelContext& c, const PoolPass& pass, const float* image, const float* pooled,
             float* image_gradient = nullptr);

 private:
  class Plan;
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace monograph::ops::pool
