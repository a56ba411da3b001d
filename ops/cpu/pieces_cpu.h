// Long loops of one thread that look at cancellation, for what ParallelFor cannot cut: loops whose
// result depends on their order, and single rows that may be very long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "executor/kernel.h"

namespace monograph {

// Elements of a cheap loop (some nanoseconds each) between two looks.
inline constexpr int64_t kPiece = int64_t{1} << 16;

// What a kernel returns whose loop was cut.
inline Status StepAborted() { return Cancelled("the step was aborted"); }

// fn(begin, end) over [0, total), in order, in pieces of at most `piece`. Once the step is aborted
// the rest is left out: false, and nobody will read what the kernel computes.
template <typename Fn>
bool InPieces(const KernelContext& c, int64_t total, int64_t piece, const Fn& fn) {
  if (total <= piece) {
    fn(int64_t{0}, total);
    return true;
  }
  for (int64_t begin = 0; begin < total; begin += piece) {
    if (c.cancelled()) return false;
    fn(begin, std::min(begin + piece, total));
  }
  return true;
}
template <typename Fn>
bool InPieces(const KernelContext& c, int64_t total, const Fn& fn) {
  return InPieces(c, total, kPiece, fn);
}

}  // namespace monograph
