// The GPUs of this machine as devices of a task.
#pragma once

#include <memory>
#include <vector>

#include "executor/device.h"
#include "executor/gpu_options.h"

namespace monograph::cuda {

// Devices /device:GPU:0 .. of `task`, in the order of the options' visible list, split and limited
// as they say. InvalidArgument for a GPU that the machine does not have; ResourceExhausted if
// another program has its memory.
Result<std::vector<std::unique_ptr<Device>>> MakeDevices(const DeviceName& task,
                                                         const GpuOptions& options);

}  // namespace monograph::cuda
