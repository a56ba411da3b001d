// How variables begin, with TensorFlow's names and formulas. Random values depend on the scope's
// seed, the variable's name and the number of the step that initialises; each part of a variable
// draws its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// What an initializer fills: a variable, or a part of one.
struct VariablePart {
  Shape shape;                  // of the part
  Shape full_shape;             // of the whole variable
  std::vector<int64_t> offset;  // where in it the part begins
  DType dtype = DT_FLOAT;
};

// Builds a value of the part's shape and type in `scope`, which is beside the variable.
using Initializer = std::function<Output(const Scope& scope, const VariablePart& part)>;

Initializer ZerosInitializer();
Initializer OnesInitializer();
Initializer ConstantInitializer(double value);
// A tensor of the whole variable's shape and type.
Initializer ValueInitializer(Tensor value);
Initializer RandomUniformInitializer(double minval = 0, double maxval = 1);
Initializer RandomNormalInitializer(double mean = 0, double stddev = 1);
// Values beyond two deviations are drawn again.
Initializer TruncatedNormalInitializer(double mean = 0, double stddev = 1);
// Uniform within sqrt(6 / (fan_in + fan_out)) around 0; fans are those of the whole variable. What
// TensorFlow takes for floating-point variables where nobody says otherwise.
Initializer GlorotUniformInitializer();
// Around 0 with variance scale / n (tf.variance_scaling_initializer), n by `mode`. He's
// initialization, for layers before a Relu, is {.scale = 2}.
struct VarianceScalingOptions {
  double scale = 1;
  enum class Mode { kFanIn, kFanOut, kFanAvg } mode = Mode::kFanIn;
  enum class Distribution {
    kTruncatedNormal,
    kUntruncatedNormal,
    kUniform
  } distribution = Distribution::kTruncatedNormal;
};
Initializer VarianceScalingInitializer(const VarianceScalingOptions& options = {});

}  // namespace monograph
