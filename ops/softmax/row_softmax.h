// How the threads of a GPU's block work on one row of logits: the maximum, then the sum of the
// exponentials, each as partial results that every thread adds up in the same order.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/gpu/device_code.h"

namespace monograph::ops {

inline constexpr int kRowThreads = 128;

template <typename A>
struct RowShared {
  A part[kRowThreads];  // of the maximum
  A sums[kRowThreads];
  A top;
};

// at(k) is logit k as an A. Call in phase 0.
template <typename A, typename At>
MG_HD inline void RowMaximum(int thread, int64_t classes, const At& at, RowShared<A>& shared) {
  A top = at(thread < classes ? thread : 0);
  for (int64_t k = thread; k < classes; k += kRowThreads) {
    const A value = at(k);
    if (top < value) top = value;
  }
  shared.part[thread] = top;
}

// In phase 1.
template <typename A, typename At>
MG_HD inline void RowSum(int thread, int64_t classes, const At& at, RowShared<A>& shared) {
  A top = shared.part[0];
  for (int i = 1; i < kRowThreads; ++i) {
    if (top < shared.part[i]) top = shared.part[i];
  }
  A sum = 0;
  for (int64_t k = thread; k < classes; k += kRowThreads) sum += std::exp(at(k) - top);
  shared.sums[thread] = sum;
  if (thread == 0) shared.top = top;
}

// In phase 2: the sum over the row; the maximum is shared.top.
template <typename A>
MG_HD inline A RowTotal(const RowShared<A>& shared) {
  A sum = 0;
  for (int i = 0; i < kRowThreads; ++i) sum += shared.sums[i];
  return sum;
}

}  // namespace monograph::ops
