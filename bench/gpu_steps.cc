#include "bench/gpu_steps.h"

#include "examples/models/mnist_cnn.h"
#include "examples/models/resnet.h"

namespace monograph::bench {

std::vector<GpuStep> GpuSteps() {
  constexpr int64_t kImages = 64;
  const examples::MnistCnn cnn{.dropout = 0};
  examples::MnistCnn cnn16 = cnn;
  examples::ResNet resnet, resnet16;
  cnn16.compute = resnet16.compute = DT_BFLOAT16;
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
  }
  return steps;
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
