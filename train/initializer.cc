#include "train/initializer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/slice/slice.h"

namespace monograph {
namespace {

// factor * drawn + shift, without what does nothing.
Output Scaled(const Scope& scope, const Output& drawn, double factor, double shift) {
  if (!scope.ok()) return {};
  const DType dtype = drawn.dtype();
  Output value = drawn;
  if (factor != 1) value = Mul(scope, value, ScalarConst(scope, factor, dtype));
  if (shift != 0) value = Add(scope, value, ScalarConst(scope, shift, dtype));
  return value;
}

// Inputs and outputs of one unit of a weight of this shape; leading dimensions are those of a
// convolution's window.
std::pair<double, double> Fans(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {1, 1};
  if (rank == 1) return {shape[0], shape[0]};
  double window = 1;
  for (int i = 0; i < rank - 2; ++i) window *= static_cast<double>(shape[i]);
  return {window * static_cast<double>(shape[rank - 2]),
          window * static_cast<double>(shape[rank - 1])};
}

}  // namespace

Initializer ZerosInitializer() { return ConstantInitializer(0); }
Initializer OnesInitializer() { return ConstantInitializer(1); }

Initializer ConstantInitializer(double value) {
  return [value](const Scope& scope, const VariablePart& part) {
    return Fill(scope, IntsConst(scope, part.shape.dims()), ScalarConst(scope, value, part.dtype));
  };
}

Initializer ValueInitializer(Tensor value) {
  return [value = std::move(value)](const Scope& scope, const VariablePart& part) {
    if (value.dtype() != part.dtype || !(value.shape() == part.full_shape)) {
      scope.Fail(InvalidArgument("an initial value of " + std::string(DTypeName(value.dtype())) +
                                 value.shape().ToString() + " for a variable of " +
                                 std::string(DTypeName(part.dtype)) + part.full_shape.ToString()));
      return Output();
    }
    const Output whole = Const(scope, value);
    if (part.shape == part.full_shape) return whole;
    return Slice(scope, whole, IntsConst(scope, part.offset), IntsConst(scope, part.shape.dims()));
  };
}

Initializer RandomUniformInitializer(double minval, double maxval) {
  return [minval, maxval](const Scope& scope, const VariablePart& part) {
    return Scaled(scope, RandomUniform(scope, IntsConst(scope, part.shape.dims()), part.dtype),
                  maxval - minval, minval);
  };
}

Initializer RandomNormalInitializer(double mean, double stddev) {
  return [mean, stddev](const Scope& scope, const VariablePart& part) {
    return Scaled(scope, RandomNormal(scope, IntsConst(scope, part.shape.dims()), part.dtype),
                  stddev, mean);
  };
}

Initializer TruncatedNormalInitializer(double mean, double stddev) {
  return [mean, stddev](const Scope& scope, const VariablePart& part) {
    return Scaled(scope, TruncatedNormal(scope, IntsConst(scope, part.shape.dims()), part.dtype),
                  stddev, mean);
  };
}

Initializer GlorotUniformInitializer() {
  return [](const Scope& scope, const VariablePart& part) {
    const auto [in, out] = Fans(part.full_shape);
    const double limit = std::sqrt(6 / (in + out));
    return RandomUniformInitializer(-limit, limit)(scope, part);
  };
}

Initializer VarianceScalingInitializer(const VarianceScalingOptions& options) {
  return [options](const Scope& scope, const VariablePart& part) {
    using Mode = VarianceScalingOptions::Mode;
    using Distribution = VarianceScalingOptions::Distribution;
    // Of a normal distribution without what is beyond two deviations, as TensorFlow has it.
    constexpr double kTruncatedDeviation = 0.87962566103423978;
    const auto [in, out] = Fans(part.full_shape);
    const double fan = options.mode == Mode::kFanIn    ? in
                       : options.mode == Mode::kFanOut ? out
                                                       : (in + out) / 2;
    const double variance = options.scale / std::max(1.0, fan);
    if (options.distribution == Distribution::kUniform) {
      const double limit = std::sqrt(3 * variance);
      return RandomUniformInitializer(-limit, limit)(scope, part);
    }
    if (options.distribution == Distribution::kUntruncatedNormal)
      return RandomNormalInitializer(0, std::sqrt(variance))(scope, part);
    return TruncatedNormalInitializer(0, std::sqrt(variance) / kTruncatedDeviation)(scope, part);
  };
}

}  // namespace monograph
