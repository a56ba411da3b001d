#include "examples/models/trivial.h"

#include <cmath>
#include <string>

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/matmul/matmul.h"
#include "ops/shape/shape.h"

namespace monograph::examples {

Output TrivialModel::Logits(const Scope& scope, const Output& images,
                            ModelVariables& variables) const {
  const auto dense = [&](const std::string& name, const Output& x, int64_t in, int64_t out) {
    const Scope layer = scope.SubScope(name);
    const Initial initial = Initial::TruncatedNormal(1 / std::sqrt(static_cast<double>(in)));
    const Output weights = variables.Get(name + "/weights", Shape{in, out}, initial);
    const Output biases = variables.Get(name + "/biases", Shape{out}, Initial::Zeros());
    return BiasAdd(layer, MatMul(layer, x, Cast(layer, weights, compute)),
                   Cast(layer, biases, compute));
  };
  const int64_t pixels = side * side * 3;
  Output x = Reshape(scope, Cast(scope, images, compute), {-1, pixels});
  x = Relu(scope, dense("affine0", x, pixels, 1));
  x = Relu(scope, dense("affine1", x, 1, 4096));
  return Cast(scope, dense("affine2", x, 4096, classes), DT_FLOAT);
}

}  // namespace monograph::examples
