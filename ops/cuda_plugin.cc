// The entry of libmonograph_cuda.so: what a program that opens it gets.
#include "base/log.h"
#include "executor/cuda_stamp.h"
#include "executor/device.h"
#include "executor/gpu/cuda/list_gpus.h"
#include "executor/gpu/cuda/make_devices.h"
#include "executor/gpu/plugin_interface.h"
#include "executor/gpu_options.h"
#include "ops/register.h"

namespace monograph {
namespace {

constexpr CudaPlugin kPlugin = {
    .stamp = MG_CUDA_STAMP,
    .list = cuda::ListGpus,
    .make_devices = cuda::MakeDevices,
    .register_kernels = RegisterCudaKernels,
};

}  // namespace
}  // namespace monograph

extern "C" const monograph::CudaPlugin* monograph_cuda_plugin(monograph::LogLevel level) {
  monograph::SetLogLevel(level);
  return &monograph::kPlugin;
}
