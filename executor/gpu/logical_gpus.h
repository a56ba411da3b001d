// Which logical devices a task makes of a machine's GPUs, as GpuOptions say. Knows nothing of CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "executor/gpu_options.h"

namespace monograph {

// What becomes /device:GPU:i; `i` is its place in the list.
struct LogicalGpu {
  int gpu = 0;               // the driver's number
  int part = 0, parts = 1;   // of that GPU
  int64_t memory_limit = 0;  // bytes

  friend bool operator==(const LogicalGpu&, const LogicalGpu&) = default;
};

struct GpuMemorySize {
  int64_t free = 0, total = 0;  // bytes
};

// Of `count` GPUs. `memory_of(gpu)` is asked once for each GPU that is used, and for no other: to
// ask costs a context there. InvalidArgument for a GPU that the machine does not have,
// ResourceExhausted where what is asked for is not free, unless memory may grow; both name the
// option, its value and what would be right. REQUIRES: CheckGpuOptions(options) is OK.
Result<std::vector<LogicalGpu>> PlanLogicalGpus(
    const GpuOptions& options, int count,
    const std::function<Result<GpuMemorySize>(int gpu)>& memory_of);

// "7.5 GiB".
std::string GibibytesText(int64_t bytes);

}  // namespace monograph
