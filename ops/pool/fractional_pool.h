// What the definitions and the kernels of fractional pooling share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/op_def.h"

namespace monograph::ops::pool {

void DefineFractional(OpRegistry* registry);

// One for each dimension of NHWC, those of batch and channels 1.
inline Status CheckPoolingRatios(const std::vector<float>& ratios, bool max) {
  if (ratios.size() != 4) return InvalidArgument("pooling_ratio field must specify 4 dimensions");
  for (const float ratio : ratios) {
    if (!(ratio >= 1)) {
      return InvalidArgument("pooling_ratio cannot be smaller than 1, got: " +
                             std::to_string(ratio));
    }
  }
  if (ratios[0] == 1 && ratios[3] == 1) return Status();
  return Unimplemented(std::string("Fractional ") + (max ? "max" : "average") +
                       " pooling is not yet supported on the batch nor channel dimension.");
}

// How many cells `size` elements have. Large sizes may be rounded up to a float.
inline int64_t FractionOf(int64_t size, float ratio) {
  return std::min(size, static_cast<int64_t>(std::floor(static_cast<float>(size) / ratio)));
}

}  // namespace monograph::ops::pool
