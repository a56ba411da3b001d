#include "executor/gpu/cuda/make_devices.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/random.h"
#include "executor/gpu/cuda/driver.h"
#include "executor/gpu/cuda/error.h"
#include "executor/gpu/cuda/nccl.h"
#include "executor/gpu/gpu_device.h"
#include "executor/gpu/logical_gpus.h"

namespace monograph::cuda {
namespace {

Result<GpuMemorySize> MemoryOf(int gpu) {
  size_t free = 0, total = 0;
  MG_CUDA_RETURN_IF_ERROR(cudaSetDevice(gpu));
  MG_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free, &total));
  return GpuMemorySize{static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

// DeviceInfo::link, as "library/node/card". The node is this boot of this machine, the card what is
// at this place on its bus: the same for all processes, containers and parts of the GPU.
std::string LinkOf(int gpu, const GpuOptions& options) {
  const Result<std::string> nccl = NcclVersion();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char bus[32] = "";
  if (!options.nccl || !nccl.ok() || boot.empty() ||
      cudaDeviceGetPCIBusId(bus, sizeof bus, gpu) != cudaSuccess)
    return "";
  return *nccl + (WantsNcclPool(options) ? " with registered pools/" : "/") + boot + "/" + bus;
}

// For compute-sanitizer. No flag, since programs without flags, as those of tests, want it, too.
bool SeparateBlocks() {
  const char* text = std::getenv("MONOGRAPH_GPU_SEPARATE_BLOCKS");
  return text != nullptr && std::string_view(text) == "1";
}

// Lets GPUs read each other's memory where the machine allows it; elsewhere copies go through the
// host.
void JoinPeers(const std::vector<int>& gpus) {
  for (const int gpu : gpus) {
    for (const int peer : gpus) {
      int can = 0;
      if (gpu == peer || cudaDeviceCanAccessPeer(&can, gpu, peer) != cudaSuccess || can == 0)
        continue;
      (void)cudaSetDevice(gpu);
      (void)cudaDeviceEnablePeerAccess(peer, 0);
    }
  }
  (void)cudaGetLastError();
}

}  // namespace

Result<std::vector<std::unique_ptr<Device>>> MakeDevices(const DeviceName& task,
                                                         const GpuOptions& options) {
  if (SeparateBlocks() && WantsNcclPool(options)) {
    return InvalidArgument(
        "MONOGRAPH_GPU_SEPARATE_BLOCKS=1 frees memory that MONOGRAPH_NCCL_POOL=1 registers");
  }
  int count = 0;
  MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&count));
  MG_ASSIGN_OR_RETURN(const std::vector<LogicalGpu> plan,
                      PlanLogicalGpus(options, count, MemoryOf));
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<int> gpus;  // that are used
  for (const LogicalGpu& logical : plan) {
    if (logical.part == 0) gpus.push_back(logical.gpu);
    cudaDeviceProp properties;
    MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, logical.gpu));
    DeviceInfo info{.name = task,
                    .description = std::string(properties.name) + ", " +
                                   GibibytesText(logical.memory_limit) + ", compute capability " +
                                   std::to_string(properties.major) + "." +
                                   std::to_string(properties.minor),
                    .memory_limit = logical.memory_limit,
                    .incarnation = RandomNonZero()};
    if (logical.parts > 1)
      info.description += ", part " + std::to_string(logical.part + 1) + " of " +
                          std::to_string(logical.parts) + " of GPU " + std::to_string(logical.gpu);
    info.link = LinkOf(logical.gpu, options);
    info.name.type = kGpu;
    info.name.id = static_cast<int>(devices.size());
    MG_ASSIGN_OR_RETURN(auto driver, MakeCudaDriver(logical.gpu, options));
    MG_ASSIGN_OR_RETURN(auto device,
                        GpuDevice::Make(std::move(info), std::move(driver),
                                        {.memory_limit = static_cast<size_t>(logical.memory_limit),
                                         .allow_growth = options.allow_growth,
                                         .replay = options.cuda_graphs,
                                         .launch_blocking = options.launch_blocking,
                                         .exit_when_lost = options.exit_when_lost,
                                         .separate_blocks = SeparateBlocks()}));
    devices.push_back(std::move(device));
  }
  JoinPeers(gpus);
  if (devices.size() > 1 && options.nccl) {
    if (const Result<std::string> nccl = NcclVersion(); !nccl.ok())
      LogInfo("collectives of GPUs go through host memory: no NCCL: " + nccl.status().message());
  }
  return devices;
}

}  // namespace monograph::cuda
