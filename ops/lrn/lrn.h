// Local response normalisation, across channels.
#pragma once

#include "graph/scope.h"

namespace monograph {

struct LRNOptions {
  int64_t depth_radius = 5;
  float bias = 1, alpha = 1, beta = 0.5;
};

// input / (bias + alpha * s)^beta, where s is the sum of the squares of the channels up to
// depth_radius away. The input has 4 dimensions, the last of them the channels.
Output LRN(const Scope& scope, Output input, const LRNOptions& options = {});

}  // namespace monograph
