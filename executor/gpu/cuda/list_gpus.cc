#include "executor/gpu/cuda/list_gpus.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string>

#include "executor/gpu/cuda/nccl.h"

namespace monograph::cuda {
namespace {

std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Status Explain(cudaError_t error, int driver, int runtime) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return FailedPrecondition(driver == 0 ? "the NVIDIA driver's library does not answer as one"
                                            : "the NVIDIA driver is too old: it supports CUDA " +
                                                  Version(driver) + ", this program needs " +
                                                  Version(runtime));
    case cudaErrorNoDevice:
      return NotFound("the driver finds no GPU (CUDA_VISIBLE_DEVICES may hide them)");
    default:
      return Unavailable(std::string("CUDA does not start: ") + cudaGetErrorString(error) + " (" +
                         cudaGetErrorName(error) + ")");
  }
}

}  // namespace

Result<std::vector<GpuInfo>> ListGpus() {
  int driver = 0, runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  if (cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return Explain(error, driver, runtime);
  const Result<std::string> nccl = NcclVersion();
  std::vector<GpuInfo> gpus;
  for (int id = 0; id < count; ++id) {
    cudaDeviceProp properties;
    if (cudaError_t error = cudaGetDeviceProperties(&properties, id); error != cudaSuccess)
      return Explain(error, driver, runtime);
    char bus[32] = "";
    cudaDeviceGetPCIBusId(bus, sizeof bus, id);
    gpus.push_back({.id = id,
                    .name = properties.name,
                    .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                    .compute_major = properties.major,
                    .compute_minor = properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .pci_bus_id = bus,
                    .driver_version = driver,
                    .runtime_version = runtime,
                    .cudnn_version = static_cast<int64_t>(cudnnGetVersion()),
                    .nccl = nccl.ok() ? *nccl : "no NCCL (" + nccl.status().message() + ")"});
  }
  return gpus;
}

}  // namespace monograph::cuda
