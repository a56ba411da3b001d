// Grayscale dilation of images, a morphological filter.
#pragma once

#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// The largest of input + filter over each window, per channel. `input` is NHWC, `filter` [height,
// width, channels]; strides and rates, which spread the filter, have four entries, of which the
// first and the last are 1. padding: "SAME" or "VALID".
Output Dilation2D(const Scope& scope, Output input, Output filter,
                  const std::vector<int64_t>& strides, const std::vector<int64_t>& rates,
                  const std::string& padding);

}  // namespace monograph
