// Random values from a seed that is an input: StatelessRandomUniform, StatelessRandomNormal,
// StatelessTruncatedNormal, StatelessRandomUniformInt, StatelessRandomUniformFullInt,
// StatelessMultinomial. The same seed gives the same values, in every step and on every device, and
// they are TensorFlow's: of uniform values all bits, of normal ones but for the last places.
//
// RandomShuffle and Multinomial have no such input: they draw as the ops of ops/random do.
#pragma once

#include "graph/scope.h"

namespace monograph {

// `seed`: a vector of two integers (int32 or int64).
Output StatelessRandomUniform(const Scope& scope, const Output& shape, const Output& seed,
                              DType dtype = DT_FLOAT);  // [0, 1)
Output StatelessRandomNormal(const Scope& scope, const Output& shape, const Output& seed,
                             DType dtype = DT_FLOAT);  // mean 0, deviation 1
// As StatelessRandomNormal; values beyond two deviations are drawn again.
Output StatelessTruncatedNormal(const Scope& scope, const Output& shape, const Output& seed,
                                DType dtype = DT_FLOAT);
// Integers in [minval, maxval), which give the type.
Output StatelessRandomUniformInt(const Scope& scope, const Output& shape, const Output& seed,
                                 const Output& minval, const Output& maxval);
// `value` with its rows (the first dimension) in a random order.
Output RandomShuffle(const Scope& scope, const Output& value, int64_t seed = 0);
// [batch, num_samples]: classes drawn by `logits` [batch, classes], logarithms of probabilities
// that need not sum to 1.
Output Multinomial(const Scope& scope, const Output& logits, const Output& num_samples,
                   int64_t seed = 0, DType output_dtype = DT_INT64);

}  // namespace monograph
