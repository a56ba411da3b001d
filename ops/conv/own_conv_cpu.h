// Convolutions of floats by our own loops, where they beat oneDNN's: on processors with AVX-512,
//   many channels, images of up to 14x14 or so    Fourier's transform: for 5x5 filters on 14x14
//                                                 pixels 8 times fewer multiplications
//   many channels, filters of 3x3 and 5x5         Winograd's minimal filtering: 4 and 2.8 times
//   few input channels (the first layer)          sums of products in registers
// all with channels last; the first two with stride 1. Results have the same bits on any number of
// threads, and differ from oneDNN's by rounding: for Winograd's up to some ten times as much as a
// plain sum.
#pragma once

#include "executor/kernel.h"
#include "ops/conv/geometry.h"
#include "ops/fused_ops.h"

namespace monograph::ops::conv {

// Whether RunOwn computes convolutions like these on this processor.
bool HasOwn(Mode mode, const Geometry& g);

// `out` is the result; of `input`, `filter`, `bias` and `dy` it reads what the mode needs. False if
// a number in the result is not finite: these loops mix neighbouring results, and what is in `out`
// is then of no use. REQUIRES: HasOwn().
Result<bool> RunOwn(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused,
                    const float* input, const float* filter, const float* bias, const float* dy,
                    float* out);

}  // namespace monograph::ops::conv
