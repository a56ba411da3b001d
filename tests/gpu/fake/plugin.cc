// A stand-in for libmonograph_cuda.so: "GPUs" whose number the environment's FAKE_GPUS says (-1:
// CUDA does not start), and whose descriptions show the options that reached them. They place, and
// compute nothing.
#include "executor/gpu/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "executor/cuda_stamp.h"
#include "executor/gpu/plugin_interface.h"
#include "executor/kernel.h"

#ifndef FAKE_STAMP
#define FAKE_STAMP MG_CUDA_STAMP
#endif

#ifdef FAKE_NEEDS_WHAT_IS_MISSING
extern "C" int monograph_fake_missing();
int fake_use = monograph_fake_missing();
#endif

namespace monograph {
namespace {

int Count() {
  const char* text = std::getenv("FAKE_GPUS");
  return text == nullptr ? 0 : std::atoi(text);
}

Result<std::vector<GpuInfo>> List() {
  if (Count() < 0) return Unavailable("CUDA does not start: so the test says");
  std::vector<GpuInfo> gpus;
  for (int id = 0; id < Count(); ++id) {
    gpus.push_back({.id = id,
                    .name = "Fake " + std::to_string(id),
                    .memory_bytes = int64_t{8} << 30,
                    .compute_major = 9,
                    .compute_minor = 0,
                    .multiprocessors = 4,
                    .pci_bus_id = "0000:0" + std::to_string(id) + ":00.0",
                    .driver_version = 13010,
                    .runtime_version = 13000,
                    .cudnn_version = 91900,
                    .nccl = "NCCL 2.28.9"});
  }
  return gpus;
}

// What the environment said of the loading of kernels when the driver (driver.cc) was opened.
std::string LoadingOfKernels() {
  using Entry = const char* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(RTLD_DEFAULT, "monograph_fake_driver_loading"));
  return entry == nullptr ? "no fake driver" : entry();
}

Result<std::vector<std::unique_ptr<Device>>> MakeDevices(const DeviceName& task,
                                                         const GpuOptions& options) {
  std::string description =
      "list=" + options.visible_device_list +
      " fraction=" + std::to_string(options.per_process_gpu_memory_fraction) +
      (options.allow_growth ? " growth" : "") + (options.allow_tf32 ? " tf32" : "") +
      (options.deterministic ? " deterministic" : "") + (options.cuda_graphs ? " graphs" : "") +
      (options.programmatic_dependent_launch ? " programmatic" : "") +
      " cache=" + options.algorithm_cache + " loading=" + LoadingOfKernels();
  for (const auto& limits : options.virtual_device_memory_mb) {
    description += " split";
    for (int64_t mebibytes : limits) description += ":" + std::to_string(mebibytes);
  }
  std::vector<std::unique_ptr<Device>> devices;
  const int count = options.device_count < 0 ? Count() : std::min(Count(), options.device_count);
  for (int id = 0; id < count; ++id) {
    DeviceInfo info{.name = task, .description = description, .memory_limit = int64_t{8} << 30};
    info.name.type = kGpu;
    info.name.id = id;
    devices.push_back(std::make_unique<Device>(std::move(info), HostAllocator()));
  }
  return devices;
}

class NoKernel : public Kernel {
 public:
  explicit NoKernel(const KernelConstruction&) {}
  Status Compute(KernelContext&) override { return Unimplemented("a fake GPU computes nothing"); }
};

void RegisterKernels(KernelRegistry* registry) {
  registry->Add<NoKernel>({.op = "Neg", .device = kGpu, .types = {{"T", DT_FLOAT}}});
  registry->Add<NoKernel>({.op = "Neg", .device = kGpu, .types = {{"T", DT_FLOAT}}, .priority = 1});
}

constexpr CudaPlugin kPlugin = {
    .stamp = FAKE_STAMP,
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
