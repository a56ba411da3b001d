// Convolutions by oneDNN, of floats and of bfloat16, of which sums are floats. Both classes belong
// to one kernel, keep what they made for each shape, and are thread-safe. Unimplemented: what
// oneDNN refuses. REQUIRES: onednn::HasBfloat16() where T is that.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/conv/geometry.h"
#include "ops/fused_ops.h"
#include "ops/pool/geometry.h"

namespace monograph::ops::conv {

template <typename T>
class OnednnConv {
 public:
  OnednnConv();
  ~OnednnConv();
  // `input`, `filter` and `dy` as far as `mode` reads them, `bias` if it is fused.
  Status Run(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused, const T* input,
             const T* filter, const T* bias, const T* dy, T* out);

 private:
  struct Plans;
  std::unique_ptr<Plans> plain_, without_relu_;
};

// What _Conv2DBackprop computes.
template <typename T>
struct BackpropData {
  const T *x = nullptr, *filter = nullptr;
  const T* dy = nullptr;                         // of what was pooled, if there is a pooling
  const T *pool_x = nullptr, *pool_y = nullptr;  // nullptr: there is none
  T *filter_gradient = nullptr, *dx = nullptr;   // nullptr: not wanted
};

// Both gradients of a convolution, chunk by chunk: a chunk of the gradient is reordered once for
// both. And what comes from a 2x2 pooling is spread while its chunk is in the cache, and never as a
// whole. The bits are those of the separate kernels. A kernel's calls agree in what is nullptr.
template <typename T>
class OnednnBackprop {
 public:
  OnednnBackprop();
  ~OnednnBackprop();
  Status Run(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
             const BackpropData<T>& data);

 private:
  class Plan;
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace monograph::ops::conv
