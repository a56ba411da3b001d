// Convolutions of floats and of bfloat16 in the frequency domain, where a window is one product of
// each frequency instead of one for each of its elements (Mathieu, Henaff, LeCun: Fast Training of
// Convolutional Networks through FFTs, 2013): for windows of 5x5 or larger with many channels, a
// tenth of the multiplications.
//
// Each result carries the rounding of its whole image: an error relative to the largest value of
// the image, not to the result itself, and exact zeros become small numbers: up to 2e-6 of that
// value with floats, and one rounding of it (1/256) with bfloat16. A NaN or an infinity
// would spread over its image; results that are not finite are given up, so that the caller
// computes them in the direct way. Bits do not depend on the number of threads.
#pragma once

#include <memory>

#include "executor/kernel.h"
#include "ops/conv/geometry.h"
#include "ops/conv/onednn_conv_cpu.h"
#include "ops/fused_ops.h"
#include "ops/pool/geometry.h"

namespace monograph::ops::conv {

// Belongs to one kernel; thread-safe.
class FourierConv {
 public:
  FourierConv();
  ~FourierConv();

  // Whether this way is possible, and faster: NHWC without groups, stride and dilation 1, windows
  // of at least 5x5, images of up to 32 pixels with their padding on one side; 32 images or more,
  // both channel counts at least 32 and multiples of 16, and products that are saved enough to pay
  // for the transforms.
  static bool Fits(const Geometry& g);

  // Both return false if some result is not finite. T: float or bfloat16, always the same one.
  // REQUIRES: Fits(g).
  template <typename T>
  Result<bool> Forward(KernelContext& c, const Geometry& g, const FusedOps& fused, const T* input,
                       const T* filter, const T* bias, T* out);
  // Of the two gradients each may be nullptr. `pool` counts if data.pool_x is there.
  template <typename T>
  Result<bool> Backprop(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
                        const BackpropData<T>& data);

 private:
  class Products;
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace monograph::ops::conv
