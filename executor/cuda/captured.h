// What a CUDA graph needs besides its nodes: code that a library compiled for a plan, say, which goes
// when the plan does.
#pragma once

#include <memory>

#include "executor/cuda/stream.h"

namespace monograph::cuda {

// While a graph is captured on the stream: keeps `need` as long as the graph may be replayed.
// Otherwise does nothing. On the launching thread.
void KeepForGraph(Stream& stream, std::shared_ptr<const void> need);

}  // namespace monograph::cuda
