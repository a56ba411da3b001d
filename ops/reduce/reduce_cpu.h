// Reductions of contiguous data in a fixed order; the kernels (reduce_cpu.cc) know of axes, this
// file of elements.
//
// The order: a run of n elements is cut into blocks of kBlock. In a block, lane i of kLanes takes
// the elements i, i + kLanes, ...; the lanes are then combined in pairs, the rest of the block one
// by one, the blocks in order. Columns are combined over rows in blocks of kRowBlock rows, these in
// order. All of this follows from shapes alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/independent_loop.h"
#include "ops/reduce/operators.h"

namespace monograph::ops::reduce {

inline constexpr int64_t kBlock = 4096;
inline constexpr int64_t kRowBlock = 256;
inline constexpr int kLanes = 16;

// One block, n <= kBlock.
template <typename T, typename Op>
T ReduceBlock(const T* x, int64_t n) {
  std::array<T, kLanes> lanes;
  lanes.fill(Op::Zero());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k)
      lanes[static_cast<size_t>(k)] = Op::Combine(lanes[static_cast<size_t>(k)], x[i + k]);
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t k = 0; k < width; ++k) lanes[k] = Op::Combine(lanes[k], lanes[k + width]);
  }
  T result = lanes[0];
  for (; i < n; ++i) result = Op::Combine(result, x[i]);
  return result;
}

// Between blocks `stop()` says whether to leave the rest out.
template <typename T, typename Op, typename Stop>
T ReduceRun(const T* x, int64_t n, const Stop& stop) {
  T result = Op::Zero();
  for (int64_t i = 0; i < n && !stop(); i += kBlock)
    result = Op::Combine(result, ReduceBlock<T, Op>(x + i, std::min(kBlock, n - i)));
  return result;
}

// out[k] = all of x[r * pitch + k] for r in [0, rows), k in [0, columns). Now and then `stop()`
// says whether to leave the rest out.
template <typename T, typename Op, typename Stop>
void ReduceRows(const T* x, int64_t rows, int64_t columns, int64_t pitch, T* out,
                const Stop& stop) {
  std::fill_n(out, columns, Op::Zero());
  const int64_t between = std::max<int64_t>(1, (int64_t{1} << 16) / std::max<int64_t>(1, columns));
  for (int64_t r = 0; r < rows; ++r) {
    if (r % between == 0 && stop()) return;
    const T* row = x + r * pitch;
    MG_INDEPENDENT_LOOP
    for (int64_t k = 0; k < columns; ++k) out[k] = Op::Combine(out[k], row[k]);
  }
}

}  // namespace monograph::ops::reduce
