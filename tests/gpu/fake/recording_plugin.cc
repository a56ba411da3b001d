// Stand-ins for libmonograph_cuda.so whose GPUs are those of tests/gpu/fake/recording_driver.h.
// One computes Relu, on the CPU, and loses its context, as after an illegal address, when the file
// that the environment's FAKE_GPU_LOSE names is there: a kernel takes it away, so that one file
// loses the GPUs of one process, once. The other, with FAKE_COMPUTES, has two GPUs, which compute
// all that CPUs do.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "executor/cuda_stamp.h"
#include "executor/gpu/plugin.h"
#include "executor/gpu/plugin_interface.h"
#include "executor/kernel.h"
#include "ops/register.h"
#include "tests/gpu/fake/fake_gpus.h"

namespace monograph {
namespace {

using testing::RecordingDriver;

std::vector<std::shared_ptr<RecordingDriver>>& Drivers() {
  static auto* drivers = new std::vector<std::shared_ptr<RecordingDriver>>;
  return *drivers;
}

#ifdef FAKE_COMPUTES
constexpr bool kComputes = true;
#else
constexpr bool kComputes = false;
#endif
constexpr int kGpus = kComputes ? 2 : 1;

Result<std::vector<GpuInfo>> List() {
  std::vector<GpuInfo> gpus;
  for (int id = 0; id < kGpus; ++id)
    gpus.push_back({.id = id, .name = "Fake", .memory_bytes = int64_t{1} << 30});
  return gpus;
}

Result<std::vector<std::unique_ptr<Device>>> MakeDevices(const DeviceName& task,
                                                         const GpuOptions& options) {
  const auto world = RecordingDriver::NewWorld();
  std::vector<std::unique_ptr<Device>> devices;
  for (int id = 0; id < kGpus && options.device_count != 0; ++id) {
    DeviceName name = task;
    name.type = kGpu;
    name.id = id;
    testing::FakeGpu gpu =
        testing::MakeFakeGpu(name.ToString(), world, static_cast<uint32_t>(id + 1),
                             {.memory_limit = size_t{1} << 30,
                              .allow_growth = true,
                              .replay = false,
                              .exit_when_lost = options.exit_when_lost});
    if (kComputes) gpu.driver->BeQuiet();
    Drivers().push_back(gpu.driver);
    devices.push_back(std::move(gpu.device));
  }
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
#ifdef FAKE_COMPUTES
  KernelRegistry made;
  RegisterCpuKernels(&made);
  OpRegistry ops;
  DefineOps(&ops);
  testing::UseCpuKernelsOnGpus(&made, ops);
  for (const KernelRegistry::Entry* entry : made.All()) {
    if (entry->def.device == kGpu) registry->Add(entry->def, entry->factory);
  }
#else
  registry->Add<Relu>({.op = "Relu", .device = kGpu, .types = {{"T", DT_FLOAT}}});
#endif
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
