// Random values: RandomUniform, RandomStandardNormal, TruncatedNormal, RandomUniformInt, and
// Dropout made of them.
//
// The values are a function of (seed, seed2, the node's name, the step's number, the element's
// index) and of nothing else: Philox 4x32-10 is called with the first three as key and the last two
// as counter. So the same program draws the same numbers on any number of threads, devices or
// tasks, and a second step draws others. Also with both seeds 0, where TensorFlow would take one
// from the system. In a session with SessionOptions::tensorflow_random_streams nodes with seeds
// draw from TensorFlow's streams instead, on CPUs.
#pragma once

#include <cstdint>

#include "graph/scope.h"

namespace monograph {

// `seed` is the op's own seed; the scope's (Scope::WithSeed) is the other half.
Output RandomUniform(const Scope& scope, const Output& shape, DType dtype = DT_FLOAT,
                     int64_t seed = 0);  // [0, 1)
Output RandomNormal(const Scope& scope, const Output& shape, DType dtype = DT_FLOAT,
                    int64_t seed = 0);  // mean 0, deviation 1
// As RandomNormal; values beyond two deviations are drawn again.
Output TruncatedNormal(const Scope& scope, const Output& shape, DType dtype = DT_FLOAT,
                       int64_t seed = 0);
// Integers in [minval, maxval).
Output RandomUniformInt(const Scope& scope, const Output& shape, const Output& minval,
                        const Output& maxval, int64_t seed = 0);

// tf.nn.dropout: each element becomes x / keep_prob with that probability, else 0. `keep_prob`:
// scalar of x's type.
Output Dropout(const Scope& scope, const Output& x, const Output& keep_prob, int64_t seed = 0);
Output Dropout(const Scope& scope, const Output& x, double keep_prob, int64_t seed = 0);

}  // namespace monograph
