// What searches for the fastest algorithm on a GPU share.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/status.h"
#include "executor/gpu/cuda/stream.h"

namespace monograph::ops {

// Names a shape on this device, with this version of the library and the stream's options, for
// FoundAlgorithms.
Result<std::string> SearchName(const cuda::Stream& stream, const std::string& library,
                               size_t version, const std::string& shape);

// Whether a CUDA graph is being captured: nothing runs then that could be timed.
Result<bool> Capturing(const cuda::Stream& stream);

// Milliseconds per call of `run`, which enqueues on the stream. Waits for the device.
Result<float> TimeOnDevice(const cuda::Stream& stream, const std::function<Status()>& run);

}  // namespace monograph::ops
