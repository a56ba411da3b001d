// CudaDriver: a GPU, or a part of one, by CUDA's runtime.
#pragma once

#include <memory>

#include "executor/gpu/driver.h"
#include "executor/gpu_options.h"

namespace monograph::cuda {

// Streams, events and library handles on CUDA's GPU number `device`. Several may share a GPU.
Result<std::shared_ptr<StreamDriver>> MakeCudaDriver(int device, const GpuOptions& options);

}  // namespace monograph::cuda
