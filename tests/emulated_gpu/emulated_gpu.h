// What the emulated libraries take from the emulated runtime (runtime.cc).
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace monograph::emulated {

// `work` in the stream's order, or into the graph that is captured. `what` is for the log.
cudaError_t EnqueueOn(CUstream_st* stream, const char* what, std::function<void()> work);

}  // namespace monograph::emulated
