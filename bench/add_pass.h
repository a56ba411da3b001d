// One pass of adding, as fast as a thread can: what a sum of two vectors costs at the very least.
#pragma once

#include <cstddef>

namespace monograph::bench {

void AddPass(const float* x, const float* y, float* z, size_t n);  // z = x + y

}  // namespace monograph::bench
