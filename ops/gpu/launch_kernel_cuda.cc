#include <cuda_runtime_api.h>

#include <string>

#include "base/log.h"
#include "executor/gpu/cuda/error.h"
#include "ops/gpu/launch_kernel.h"

namespace monograph::ops {
namespace {

// Whether the code that runs waits for the kernel before. What was made for compute capability 8.0
// does not, and may be what a newer GPU runs. All kernels are made for the same architectures, so
// one answers for all.
bool Waits(const cuda::Stream& stream, const void* kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error == cudaSuccess && stream.compute_capability >= 90 && attributes.ptxVersion >= 90)
    return true;
  LogWarning(
      "GPU " + std::to_string(stream.device) +
      " has no programmatic dependent launch: it needs compute capability 9.0, and code for it");
  return false;
}

}  // namespace

Status LaunchKernel(cuda::Stream& stream, const void* kernel, int64_t blocks, int threads,
                    void** arguments) {
  if (stream.options.programmatic_dependent_launch && !stream.overlaps)
    stream.overlaps = Waits(stream, kernel);
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream.stream;
  config.attrs = &overlap;
  config.numAttrs = stream.overlaps.value_or(false) ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel, arguments);
  if (error == cudaSuccess) [[likely]]
    return Status();
  (void)cudaGetLastError();  // else the next launch would find it
  return cuda::CudaStatus(error, "cudaLaunchKernelExC");
}

}  // namespace monograph::ops
