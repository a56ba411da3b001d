// What a CUDA graph needs besides its nodes: code that a library compiled for a plan, say, which
// goes when the plan does.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "executor/gpu/cuda/stream.h"

namespace monograph::cuda {

// Every Stream is one. The launching thread's.
struct CapturingStream : Stream {
  bool captures = false;
  std::vector<std::shared_ptr<const void>> captured;  // what the graph that is captured needs
};

// While a graph is captured on the stream: keeps `need` as long as the graph may be replayed.
// Otherwise does nothing.
inline void KeepForGraph(Stream& stream, std::shared_ptr<const void> need) {
  auto& of = static_cast<CapturingStream&>(stream);
  if (of.captures) of.captured.push_back(std::move(need));
}

}  // namespace monograph::cuda
