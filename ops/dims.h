// Small helpers for shape functions: one dimension at a time, -1 for unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph::ops {

// What two sides say about one dimension together. InvalidArgument "<what>: 3 and 4 differ".
inline Result<int64_t> MergeDim(int64_t a, int64_t b, std::string_view what) {
  if (a >= 0 && b >= 0 && a != b) {
    return InvalidArgument(std::string(what) + ": " + std::to_string(a) + " and " +
                           std::to_string(b) + " differ");
  }
  return a >= 0 ? a : b;
}

}  // namespace monograph::ops
