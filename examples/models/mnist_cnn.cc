#include "examples/models/mnist_cnn.h"

#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"

namespace monograph::examples {
namespace {

constexpr int64_t kKernel = 5;

// As in the tutorials: weights with a little noise, biases slightly positive so that no unit is
// born dead.
// Variables are float, and cast to the type of the tensor that they are used with.
Output Weights(const Scope& scope, ModelVariables& variables, const std::string& name,
               const Shape& shape, DType dtype) {
  return Cast(scope, variables.Get(name, shape, Initial::TruncatedNormal(0.1)), dtype);
}
Output Biases(const Scope& scope, ModelVariables& variables, const std::string& name, int64_t size,
              DType dtype) {
  return Cast(scope, variables.Get(name, Shape{size}, Initial::Constant(0.1)), dtype);
}

Output ConvLayer(const Scope& scope, const Output& x, int64_t in, int64_t out,
                 const std::string& name, ModelVariables& variables) {
  const Output filter =
      Weights(scope, variables, name + "/weights", Shape{kKernel, kKernel, in, out}, x.dtype());
  const Output conv = Conv2D(scope.WithOpName("Conv2D"), x, filter, {1, 1, 1, 1}, "SAME");
  const Output sum = BiasAdd(scope.WithOpName("BiasAdd"), conv,
                             Biases(scope, variables, name + "/biases", out, x.dtype()));
  const Output active = Relu(scope.WithOpName("Relu"), sum);
  return MaxPool(scope.WithOpName("MaxPool"), active, {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
}

int64_t Half(int64_t size) {
  return (size + 1) / 2;
}  // after a pool of stride 2 with padding "SAME"

ModelFn Model(const MnistCnn& cnn, bool training) {
  return [cnn, training](Scope& tower, std::span<const Output> batch,
                         ModelVariables& variables) -> Result<Outputs> {
    const Output features = cnn.Convolutions(tower, batch[0], variables);
    const Output logits = cnn.Dense(tower, features, variables, training);
    return LossAndAccuracy(tower, logits, batch[1]);
  };
}

}  // namespace

int64_t MnistCnn::features() const { return Half(Half(side)) * Half(Half(side)) * conv2; }

Output MnistCnn::Convolutions(const Scope& scope, const Output& images,
                              ModelVariables& variables) const {
  if (!images.valid()) return {};
  Output pixels = images;
  if (images.dtype() == DT_UINT8) {
    const Scope input = scope.SubScope("input");
    pixels = Mul(input, Cast(input, images, DT_FLOAT), Const(input, 1.0f / 255.0f));
  }
  const Output image =
      Reshape(scope.WithOpName("image"), Cast(scope, pixels, compute), {-1, side, side, 1});
  const Output first = ConvLayer(scope.SubScope("conv1"), image, 1, conv1, "conv1", variables);
  const Output second = ConvLayer(scope.SubScope("conv2"), first, conv1, conv2, "conv2", variables);
  return Reshape(scope.WithOpName("features"), second, {-1, features()});
}

Output MnistCnn::Dense(const Scope& scope, const Output& input, ModelVariables& variables,
                       bool training) const {
  const Scope hidden = scope.SubScope("fc1");
  const Output product =
      MatMul(hidden.WithOpName("MatMul"), input,
             Weights(hidden, variables, "fc1/weights", Shape{features(), fc}, input.dtype()));
  const Output sum = BiasAdd(hidden.WithOpName("BiasAdd"), product,
                             Biases(hidden, variables, "fc1/biases", fc, input.dtype()));
  Output units = Relu(hidden.WithOpName("Relu"), sum);
  if (training && dropout > 0) units = Dropout(scope, units, 1 - dropout, seed);
  const Scope last = scope.SubScope("fc2");
  const Output scores =
      MatMul(last.WithOpName("MatMul"), units,
             Weights(last, variables, "fc2/weights", Shape{fc, classes}, input.dtype()));
  const Output logits = BiasAdd(last.WithOpName("logits"), scores,
                                Biases(last, variables, "fc2/biases", classes, input.dtype()));
  return Cast(last, logits, DT_FLOAT);
}

Outputs LossAndAccuracy(const Scope& scope, const Output& logits, const Output& labels) {
  if (!logits.valid() || !labels.valid()) return {};
  const Scope loss = scope.SubScope("loss"), accuracy = scope.SubScope("accuracy");
  const Output entropy = SparseSoftmaxCrossEntropyWithLogits(loss, logits, labels);
  // int32 is compared on the host, also beside a GPU, which would cut the step in two.
  const Output classes = labels.dtype() == DT_INT32 ? Cast(accuracy, labels, DT_INT64) : labels;
  const Output hits = Equal(accuracy, ArgMax(accuracy, logits, 1, DT_INT64), classes);
  return {ReduceMean(loss.WithOpName("mean"), entropy),
          ReduceMean(accuracy.WithOpName("mean"), Cast(accuracy, hits, DT_FLOAT))};
}

ModelFn MnistCnn::Training() const { return Model(*this, true); }
ModelFn MnistCnn::Evaluation() const { return Model(*this, false); }

}  // namespace monograph::examples
