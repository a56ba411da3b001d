// How a kernel of ours comes to a stream; for ForEach and ForBlocks (ops/gpu/launch.h).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "executor/gpu/cuda/stream.h"

namespace monograph::ops {

// Enqueues `kernel`, which begins with AwaitKernelBefore; `arguments` are pointers to its own.
Status LaunchKernel(cuda::Stream& stream, const void* kernel, int64_t blocks, int threads,
                    void** arguments);

}  // namespace monograph::ops
