#include "bench/gpu_steps.h"

#include "examples/models/mnist_cnn.h"
#include "examples/models/resnet.h"
#include "examples/models/transformer.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"

namespace monograph::bench {
namespace {

// Takes tokens as numbers in [0, 1), which are their weights, too; the labels of images are not
// looked at.
ModelFn OfNumbers(const examples::Transformer& net) {
  return [net](Scope& tower, std::span<const Output> batch,
               ModelVariables& variables) -> Result<Outputs> {
    const Output scale = Const(tower, static_cast<float>(net.vocabulary));
    const Output tokens = Cast(tower, Mul(tower, batch[0], scale), DT_INT32);
    return net.Training()(tower, Outputs{tokens, tokens, batch[0]}, variables);
  };
}

}  // namespace

std::vector<GpuStep> GpuSteps() {
  constexpr int64_t kImages = 64;
  const examples::MnistCnn cnn{.dropout = 0};
  examples::MnistCnn cnn16 = cnn;
  examples::ResNet resnet, resnet16;
  cnn16.compute = resnet16.compute = DT_BFLOAT16;
  const examples::Transformer encoder{.vocabulary = 30522,
                                      .length = 128,
                                      .layers = 12,
                                      .heads = 12,
                                      .width = 768,
                                      .inner = 3072,
                                      .compute = DT_BFLOAT16,
                                      .fused_attention = true};  // BERT's base size
  const Shape digits{kImages, 28 * 28}, photos{kImages, resnet.side, resnet.side, 3};
  std::vector<GpuStep> steps;
  for (const bool deterministic : {false, true}) {
    const auto add = [&](const std::string& model, const std::string& type, const ModelFn& fn,
                         const Shape& images, bool allow_tf32) {
      const std::string batch = model + ", batch " + std::to_string(kImages) + ", ";
      const std::string how = deterministic ? "deterministic " : "";
      steps.push_back({.name = batch + how + type,
                       .peers = batch + type,
                       .model = fn,
                       .images = images,
                       .mode = {.allow_tf32 = allow_tf32, .deterministic = deterministic}});
    };
    add("CNN", "float32", cnn.Training(), digits, false);
    add("CNN", "TF32", cnn.Training(), digits, true);
    add("CNN", "bfloat16", cnn16.Training(), digits, true);
    add("ResNet-50", "float32", resnet.Training(), photos, false);
    add("ResNet-50", "TF32", resnet.Training(), photos, true);
    add("ResNet-50", "bfloat16", resnet16.Training(), photos, true);
    add("Transformer", "bfloat16", OfNumbers(encoder), {kImages, encoder.length}, true);
  }
  return steps;
}

std::vector<GpuStep> LossSteps(bool small) {
  examples::MnistCnn cnn{.dropout = 0};
  examples::ResNet resnet;
  if (small) {
    cnn.fc = 16;
    resnet.side = 64;
    resnet.classes = 10;
    resnet.width = 8;
    resnet.blocks = {1, 1, 2, 1};
  }
  const int64_t images = small ? 4 : 64;
  const GpuMode mode{.deterministic = true};
  return {{.name = "CNN", .model = cnn.Training(), .images = {images, 28 * 28}, .mode = mode},
          {.name = "ResNet-50",
           .model = resnet.Training(),
           .images = {images, resnet.side, resnet.side, 3},
           .mode = mode}};
}

std::vector<Side> TorchSides(Peer& torch, const GpuStep& step) {
  std::vector<Side> sides;
  for (const std::string how : {"eager", "compiled"}) {
    sides.push_back(torch.AsSide("torch " + how, step.peers + ", " + how, 3));
    sides.back().goal = kGoalOfTorch;
  }
  return sides;
}

}  // namespace monograph::bench
