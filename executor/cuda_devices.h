// The seam for GPUs: cuda/ or no_cuda/ supplies these functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/device.h"
#include "executor/gpu_options.h"

namespace monograph {

// Devices /device:GPU:0 .. of `task`. None is no error, unless the options ask for what is not
// there.
Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task,
                                                             const GpuOptions& options);
// Why MakeCudaDevices finds none, for one line in the log.
std::string WhyNoCuda();

}  // namespace monograph
