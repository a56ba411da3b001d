#include "bench/add_pass.h"

#include "base/independent_loop.h"

namespace monograph::bench {

void AddPass(const float* x, const float* y, float* z, size_t n) {
  MG_INDEPENDENT_LOOP
  for (size_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

}  // namespace monograph::bench
