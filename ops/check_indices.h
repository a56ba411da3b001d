// What indices in host memory may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph::ops {

// InvalidArgument for the first that is not in [0, limit): "indices[3] = 7 is not in [0, 5)".
// `first`: the number of the first one, where these are a part.
template <typename I>
Status CheckIndices(std::span<const I> indices, int64_t limit, std::string_view what = "indices",
                    int64_t first = 0) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0 && indices[i] < limit) continue;
    return InvalidArgument(
        std::string(what) + "[" + std::to_string(first + static_cast<int64_t>(i)) +
        "] = " + std::to_string(indices[i]) + " is not in [0, " + std::to_string(limit) + ")");
  }
  return Status();
}

}  // namespace monograph::ops
