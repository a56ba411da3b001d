#include "bench/gpu_losses.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "bench/gpu_training.h"

namespace monograph::bench {

void CompareLosses(const Args& args, const GpuStep& step, int steps, const std::string& name) {
  if (args.torch.empty()) {
    std::printf("%s: no torch to compare with (--torch)\n", name.c_str());
    return;
  }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("gpu_bench_losses_" + std::to_string(getpid()));
  const std::string weights = folder / "weights";
  unsetenv("CUDA_MODULE_LOADING");  // which the opening of CUDA here has set, and torch wants late
  const std::unique_ptr<Peer> peer =
      Peer::Start(args.torch, "torch_losses.py", {"--weights=" + weights + ".safetensors"});
  Training training(step.model, step.images, step.mode, /*warm=*/false);
  training.Save(weights);
  if (!peer->WaitReady()) Die(name + ": torch does not start");
  const Side torch = peer->AsSide("torch", "loss", 1);
  std::printf("%s, batch %lld\n\n| step | ours | torch |\n| --- | --- | --- |\n", name.c_str(),
              static_cast<long long>(training.batch()));
  bool agree = true;
  for (int i = 1; i <= steps; ++i) {
    const double ours = training.Loss();
    const std::optional<std::vector<double>> theirs = torch.repetition();
    std::filesystem::remove_all(folder);
    if (!theirs) Die(name + ": torch has ended");
    std::printf("| %d | %.6f | %.6f |\n", i, ours, theirs->front());
    agree = agree && LossesAgree(ours, theirs->front());
  }
  std::printf("\n");
  std::fflush(stdout);
  if (!agree) {
    char most[32];
    std::snprintf(most, sizeof most, "%.3g", kLossTolerance);
    Die(name + ": the losses differ from torch's by more than " + most);
  }
}

}  // namespace monograph::bench
