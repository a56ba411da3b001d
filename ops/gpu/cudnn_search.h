// What searches for the fastest algorithm on a GPU share.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "executor/gpu/cuda/stream.h"

namespace monograph::ops {

// Names a shape on this device, with these versions and options, for FoundAlgorithms.
Result<std::string> SearchName(const cuda::Stream& stream, const std::string& shape);

// Whether a CUDA graph is being captured: nothing runs then that could be timed.
Result<bool> Capturing(const cuda::Stream& stream);

// Milliseconds per call of `run`, which enqueues on the stream. Waits for the device.
Result<float> TimeOnDevice(const cuda::Stream& stream, const std::function<Status()>& run);

}  // namespace monograph::ops
