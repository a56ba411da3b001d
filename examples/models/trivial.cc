#include "examples/models/trivial.h"

#include <cmath>
#include <string>

#include "examples/models/mnist_cnn.h"
#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/matmul/matmul.h"
#include "ops/shape/shape.h"

namespace monograph::examples {

ModelFn TrivialModel::Training() const {
  return [net = *this](Scope& tower, std::span<const Output> batch,
                       ModelVariables& variables) -> Result<Outputs> {
    const auto dense = [&](const std::string& name, const Output& x, int64_t in, int64_t out) {
      const Scope layer = tower.SubScope(name);
      const Initial initial = Initial::TruncatedNormal(1 / std::sqrt(static_cast<double>(in)));
      const Output weights = variables.Get(name + "/weights", Shape{in, out}, initial);
      const Output biases = variables.Get(name + "/biases", Shape{out}, Initial::Zeros());
      return BiasAdd(layer, MatMul(layer, x, Cast(layer, weights, net.compute)),
                     Cast(layer, biases, net.compute));
    };
    const int64_t pixels = net.side * net.side * 3;
    Output x = Reshape(tower, Cast(tower, batch[0], net.compute), {-1, pixels});
    x = Relu(tower, dense("affine0", x, pixels, 1));
    x = Relu(tower, dense("affine1", x, 1, 4096));
    const Output logits = dense("affine2", x, 4096, net.classes);
    return LossAndAccuracy(tower, Cast(tower, logits, DT_FLOAT), batch[1]);
  };
}

}  // namespace monograph::examples
