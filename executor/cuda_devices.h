// The seam for GPUs: cuda/ or no_cuda/ supplies these functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/device.h"

namespace monograph {

// Devices /device:GPU:0 .. of `task`: the first `count` that this machine has, all of them if
// `count` is negative. None is no error.
Result<std::vector<std::unique_ptr<Device>>> MakeCudaDevices(const DeviceName& task, int count);
// Why MakeCudaDevices finds none, for one line in the log.
std::string WhyNoCuda();

}  // namespace monograph
