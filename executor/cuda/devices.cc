#include "executor/cuda/devices.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <string>

#include "base/log.h"
#include "executor/cuda/driver.h"
#include "executor/cuda/error.h"
#include "executor/cuda/nccl.h"
#include "executor/gpu/device.h"

namespace monograph::cuda {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// What CUDA, cuDNN and cuBLASLt need for themselves, when a task takes all the rest.
int64_t Reserve(int64_t total) { return std::max(512 * kMiB, total / 32); }

std::string GiB(int64_t bytes) {
  const int64_t tenths = (bytes * 10 + (int64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

// The limits of the logical devices of one GPU.
Result<std::vector<int64_t>> Limits(int gpu, const std::vector<int64_t>& split,
                                    const GpuOptions& options) {
  size_t free_bytes = 0, total_bytes = 0;
  MG_CUDA_RETURN_IF_ERROR(cudaSetDevice(gpu));
  MG_CUDA_RETURN_IF_ERROR(cudaMemGetInfo(&free_bytes, &total_bytes));
  const auto free = static_cast<int64_t>(free_bytes), total = static_cast<int64_t>(total_bytes);
  std::vector<int64_t> limits;
  for (const int64_t mib : split) limits.push_back(mib * kMiB);
  if (limits.empty()) {
    const double fraction = options.per_process_gpu_memory_fraction;
    limits.push_back(fraction > 0 ? static_cast<int64_t>(static_cast<double>(total) * fraction)
                                  : free - Reserve(total));
  }
  const int64_t wanted = std::accumulate(limits.begin(), limits.end(), int64_t{0});
  if (wanted <= 0 || (wanted > free && !options.allow_growth)) {
    return ResourceExhausted("GPU " + std::to_string(gpu) + " has " + GiB(free) + " of " +
                             GiB(total) + " free; this task is to take " +
                             GiB(std::max<int64_t>(wanted, 0)) +
                             ". Lower per_process_gpu_memory_fraction, give smaller virtual GPUs, "
                             "or set allow_growth");
  }
  return limits;
}

// DeviceInfo::link. The card is that of this boot of this machine at this place on its bus: the
// same for all processes, containers and parts of the GPU.
std::string LinkOf(int gpu, const GpuOptions& options) {
  const Result<std::string> nccl = NcclVersion();
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char bus[32] = "";
  if (!options.nccl || !nccl.ok() || boot.empty() ||
      cudaDeviceGetPCIBusId(bus, sizeof bus, gpu) != cudaSuccess)
    return "";
  return *nccl + "/" + boot + "/" + bus;
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
  int count = 0;
  MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceCount(&count));
  MG_ASSIGN_OR_RETURN(std::vector<int> gpus, ParseVisibleDeviceList(options.visible_device_list));
  if (options.visible_device_list.empty()) {
    gpus.resize(static_cast<size_t>(count));
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  const auto& split = options.virtual_device_memory_mb;
  if (split.size() > gpus.size()) {
    return InvalidArgument("virtual GPUs are given for " + std::to_string(split.size()) +
                           " GPUs; " + std::to_string(gpus.size()) + " are visible");
  }
  for (const int gpu : gpus) {
    if (gpu < 0 || gpu >= count) {
      return InvalidArgument("visible_device_list names GPU " + std::to_string(gpu) +
                             "; this machine has " + std::to_string(count));
    }
  }
  std::random_device random;
  std::vector<std::unique_ptr<Device>> devices;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const auto full = [&] {
      return options.device_count >= 0 && static_cast<int>(devices.size()) >= options.device_count;
    };
    if (full()) break;
    cudaDeviceProp properties;
    MG_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, gpus[i]));
    MG_ASSIGN_OR_RETURN(
        const std::vector<int64_t> limits,
        Limits(gpus[i], i < split.size() ? split[i] : std::vector<int64_t>(), options));
    for (size_t part = 0; part < limits.size() && !full(); ++part) {
      DeviceInfo info{.name = task,
                      .description = std::string(properties.name) + ", " + GiB(limits[part]) +
                                     ", compute capability " + std::to_string(properties.major) +
                                     "." + std::to_string(properties.minor),
                      .memory_limit = limits[part],
                      .incarnation = (static_cast<uint64_t>(random()) << 32) | random()};
      if (limits.size() > 1)
        info.description += ", part " + std::to_string(part + 1) + " of " +
                            std::to_string(limits.size()) + " of GPU " + std::to_string(gpus[i]);
      info.link = LinkOf(gpus[i], options);
      info.name.type = "GPU";
      info.name.id = static_cast<int>(devices.size());
      MG_ASSIGN_OR_RETURN(auto driver, MakeCudaDriver(gpus[i], options));
      MG_ASSIGN_OR_RETURN(auto device,
                          GpuDevice::Make(std::move(info), std::move(driver),
                                          {.memory_limit = static_cast<size_t>(limits[part]),
                                           .allow_growth = options.allow_growth,
                                           .replay = options.cuda_graphs,
                                           .launch_blocking = options.launch_blocking,
                                           .exit_when_lost = options.exit_when_lost}));
      devices.push_back(std::move(device));
    }
  }
  JoinPeers(gpus);
  if (devices.size() > 1 && options.nccl) {
    if (const Result<std::string> nccl = NcclVersion(); !nccl.ok())
      LogInfo("collectives of GPUs go through host memory: no NCCL: " + nccl.status().message());
  }
  return devices;
}

}  // namespace monograph::cuda
