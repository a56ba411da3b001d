// Normalisation of rows, as one op.
#pragma once

#include "graph/scope.h"

namespace monograph {

// Each row of the last dimension with mean 0 and variance 1, times scale, plus offset (J. Ba,
// J. Kiros and G. Hinton, "Layer Normalization", 2016). x is of float, bfloat16 or half, with at
// least one dimension, and so is the result; scale and offset are float, of the last dimension's
// size; what lies between is float, too. Its gradient is an op and has none itself.
Output LayerNorm(const Scope& scope, const Output& x, const Output& scale, const Output& offset,
                 float epsilon = 1e-5f);

}  // namespace monograph
