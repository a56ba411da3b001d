#include "examples/models/resnet.h"

#include <cmath>
#include <string>

#include "examples/models/mnist_cnn.h"
#include "ops/activation/activation.h"
#include "ops/batch_norm/batch_norm.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/transpose/transpose.h"

namespace monograph::examples {
namespace {

// Channels of a block's last convolution, over those of its others.
int64_t Expansion(const ResNet& net) { return net.bottleneck ? 4 : 1; }

// Layers of one network: each takes its variables under its scope's name.
class Layers {
 public:
  Layers(const ResNet& net, ModelVariables& variables) : net_(net), variables_(variables) {}

  // A convolution with its window centred, whatever the stride.
  Output Conv(const Scope& scope, const std::string& name, const Output& x, int64_t in, int64_t out,
              int64_t kernel, int64_t stride) {
    const double deviation = std::sqrt(2.0 / static_cast<double>(kernel * kernel * out));
    const Output filter = Cast(scope,
                               variables_.Get(name + "/weights", Shape{kernel, kernel, in, out},
                                              Initial::TruncatedNormal(deviation)),
                               net_.compute);
    const int64_t pad = kernel / 2;
    Conv2DOptions options{.data_format = data_format()};
    if (pad > 0) {
      options.explicit_paddings = net_.channels_first
                                      ? std::vector<int64_t>{0, 0, 0, 0, pad, pad, pad, pad}
                                      : std::vector<int64_t>{0, 0, pad, pad, pad, pad, 0, 0};
    }
    return Conv2D(scope.WithOpName("Conv2D"), x, filter, ByImage(stride),
                  pad == 0 ? "VALID" : "EXPLICIT", options);
  }

  Output Norm(const Scope& scope, const std::string& name, const Output& x, int64_t channels) {
    const Output scale = variables_.Get(name + "/gamma", Shape{channels}, Initial::Constant(1));
    const Output offset = variables_.Get(name + "/beta", Shape{channels}, Initial::Zeros());
    return FusedBatchNorm(scope.WithOpName("FusedBatchNorm"), x, scale, offset, {}, {},
                          {.epsilon = net_.epsilon, .data_format = data_format()})
        .y;
  }

  Output Pool(const Scope& scope, const Output& x) {
    return MaxPool(scope, x, ByImage(3), ByImage(2), "SAME", data_format());
  }

  Output ConvNorm(const Scope& scope, const std::string& name, const Output& x, int64_t in,
                  int64_t out, int64_t kernel, int64_t stride) {
    return Norm(scope, name, Conv(scope, name, x, in, out, kernel, stride), out);
  }

  // Convolutions, and what came in added to what comes out.
  Output Block(const Scope& scope, const std::string& name, const Output& x, int64_t in,
               int64_t width, int64_t stride) {
    const int64_t out = width * Expansion(net_);
    const auto layer = [&](const char* part, const Output& from, int64_t a, int64_t b,
                           int64_t kernel, int64_t step) {
      return ConvNorm(scope.SubScope(part), name + "/" + part, from, a, b, kernel, step);
    };
    const Output straight = in == out && stride == 1 ? x : layer("shortcut", x, in, out, 1, stride);
    Output y;
    if (net_.bottleneck) {
      y = Relu(scope, layer("conv1", x, in, width, 1, 1));
      y = Relu(scope, layer("conv2", y, width, width, 3, stride));
      y = layer("conv3", y, width, out, 1, 1);
    } else {
      y = Relu(scope, layer("conv1", x, in, width, 3, stride));
      y = layer("conv2", y, width, width, 3, 1);
    }
    return Relu(scope.WithOpName("out"), Add(scope, y, straight));
  }

  Output Dense(const Scope& scope, const std::string& name, const Output& x, int64_t in,
               int64_t out) {
    const Output weights =
        Cast(scope,
             variables_.Get(name + "/weights", Shape{in, out},
                            Initial::TruncatedNormal(1 / std::sqrt(static_cast<double>(in)))),
             net_.compute);
    const Output biases =
        Cast(scope, variables_.Get(name + "/biases", Shape{out}, Initial::Zeros()), net_.compute);
    return BiasAdd(scope.WithOpName("logits"), MatMul(scope, x, weights), biases);
  }

 private:
  std::string data_format() const { return net_.channels_first ? "NCHW" : "NHWC"; }
  // By dimension of an image: `size` rows and columns.
  std::vector<int64_t> ByImage(int64_t size) const {
    return net_.channels_first ? std::vector<int64_t>{1, 1, size, size}
                               : std::vector<int64_t>{1, size, size, 1};
  }

  const ResNet& net_;
  ModelVariables& variables_;
};

}  // namespace

Output ResNet::Logits(const Scope& scope, const Output& images, ModelVariables& variables) const {
  if (!images.valid()) return {};
  Layers layers(*this, variables);
  const Scope first = scope.SubScope("conv1");
  Output x = Cast(first, images, compute);
  if (channels_first) x = Transpose(first, x, {0, 3, 1, 2});
  x = layers.Pool(first, Relu(first, layers.ConvNorm(first, "conv1", x, 3, width, 7, 2)));
  int64_t in = width, inner = width;
  for (size_t stage = 0; stage < blocks.size(); ++stage, inner *= 2) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name =
          "stage" + std::to_string(stage + 1) + "/block" + std::to_string(block + 1);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = layers.Block(scope.SubScope(name), name, x, in, inner, stride);
      in = inner * Expansion(*this);
    }
  }
  const Scope last = scope.SubScope("fc");
  x = channels_first ? Mean(last.WithOpName("average"), x, {2, 3})
                     : Mean(last.WithOpName("average"), x, {1, 2});
  return Cast(last, layers.Dense(last, "fc", x, in, classes), DT_FLOAT);
}

ModelFn ResNet::Training() const {
  return [net = *this](Scope& tower, std::span<const Output> batch,
                       ModelVariables& variables) -> Result<Outputs> {
    return LossAndAccuracy(tower, net.Logits(tower, batch[0], variables), batch[1]);
  };
}

}  // namespace monograph::examples
