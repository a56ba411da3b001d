// A stand-in for libmonograph_cuda.so whose GPUs compute Relu, on the CPU, and lose their context,
// as after an illegal address, when the file that the environment's FAKE_GPU_LOSE names is there: a
// kernel takes it away, so that one file loses the GPUs of one process, once.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "executor/cuda_devices.h"
#include "executor/cuda_plugin.h"
#include "executor/cuda_stamp.h"
#include "executor/kernel.h"
#include "tests/executor/gpu/fake_gpus.h"

namespace monograph {
namespace {

using testing::RecordingDriver;

std::vector<std::shared_ptr<RecordingDriver>>& Drivers() {
  static auto* drivers = new std::vector<std::shared_ptr<RecordingDriver>>;
  return *drivers;
}

Result<std::vector<GpuInfo>> List() {
  return std::vector<GpuInfo>{{.id = 0, .name = "Fake", .memory_bytes = int64_t{1} << 30}};
}

Result<std::vector<std::unique_ptr<Device>>> MakeDevices(const DeviceName& task,
                                                         const GpuOptions& options) {
  DeviceName name = task;
  name.type = "GPU";
  name.id = 0;
  testing::FakeGpu gpu = testing::MakeFakeGpu(name.ToString(), RecordingDriver::NewWorld(), 1,
                                              {.memory_limit = size_t{64} << 20,
                                               .replay = false,
                                               .exit_when_lost = options.exit_when_lost});
  Drivers().push_back(gpu.driver);
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::move(gpu.device));
  return devices;
}

class Relu : public Kernel {
 public:
  explicit Relu(const KernelConstruction&) {}
  Status Compute(KernelContext& context) override {
    const char* lose = std::getenv("FAKE_GPU_LOSE");
    if (lose != nullptr && unlink(lose) == 0) {
      for (const auto& driver : Drivers()) driver->Lose();
    }
    const Tensor& x = context.input(0);
    MG_ASSIGN_OR_RETURN(Tensor * y, context.AllocateOutput(0, x.shape()));
    const auto values = x.values<float>();
    std::transform(values.begin(), values.end(), y->data<float>(),
                   [](float value) { return std::max(value, 0.0f); });
    return Status();
  }
};

void RegisterKernels(KernelRegistry* registry) {
  registry->Add<Relu>({.op = "Relu", .device = "GPU", .types = {{"T", DT_FLOAT}}});
}

constexpr CudaPlugin kPlugin = {
    .stamp = MG_CUDA_STAMP,
    .list = List,
    .make_devices = MakeDevices,
    .register_kernels = RegisterKernels,
};

}  // namespace
}  // namespace monograph

extern "C" const monograph::CudaPlugin* monograph_cuda_plugin(monograph::LogLevel level) {
  monograph::SetLogLevel(level);
  return &monograph::kPlugin;
}
