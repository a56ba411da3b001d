// Losses of a training against torch's, from the same weights and the same batch.
#pragma once

#include <string>

#include "bench/gpu_steps.h"
#include "bench/harness.h"

namespace monograph::bench {

// How far a loss may be from torch's, relative to the larger of 1 and torch's. Both compute in
// float32, in other orders: what that changes grows from step to step.
inline constexpr double kLossTolerance = 2e-3;
constexpr bool LossesAgree(double ours, double theirs) {
  const double largest = theirs > 1 ? theirs : 1;
  return ours - theirs <= kLossTolerance * largest && theirs - ours <= kLossTolerance * largest;
}

// `steps` steps here and in torch (Args::torch, bench/peers/torch_losses.py), and a table of both
// losses. Ends the program where they differ by more, or torch does not run; says so where there is
// none. `step`: of float32.
void CompareLosses(const Args& args, const GpuStep& step, int steps, const std::string& name);

}  // namespace monograph::bench
