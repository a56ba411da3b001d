// The GPUs of this machine, as CUDA sees them without a context on any.
#pragma once

#include <vector>

#include "executor/gpu/plugin_interface.h"

namespace monograph::cuda {

// Every GPU that the driver shows. An error says why CUDA cannot be used.
Result<std::vector<GpuInfo>> ListGpus();

}  // namespace monograph::cuda
