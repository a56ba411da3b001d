// Batch normalisation.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

struct FusedBatchNormOptions {
  float epsilon = 1e-3f;
  std::string data_format = "NHWC";  // or "NCHW"; "NDHWC" and "NCDHW" of 5 dimensions
  bool is_training = true;
  float exponential_avg_factor = 1;
};

struct FusedBatchNormOutputs {
  Output y;  // as x
  // What the moving averages take in: the batch's own mean and variance (divided by n - 1), or with
  // a factor f below 1 the moving averages themselves, (1 - f) * old + f * the batch's.
  // Not training: `mean` and `variance` as they were given.
  Output batch_mean, batch_variance;
};

// y = (x - mean) * scale / sqrt(variance + epsilon) + offset, per channel. Training normalises by
// the mean and the variance (divided by n) of x itself; `mean` and `variance` may be left out
// (invalid) unless exponential_avg_factor is below 1. Otherwise it normalises by those given.
// x is half, bfloat16 or float; the others are float vectors, one element per channel. Gradients
// flow to x, scale and offset, from y alone.
FusedBatchNormOutputs FusedBatchNorm(const Scope& scope, Output x, Output scale, Output offset,
                                     Output mean = {}, Output variance = {},
                                     const FusedBatchNormOptions& options = {});

}  // namespace monograph
