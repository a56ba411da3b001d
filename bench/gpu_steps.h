// The training steps that gpu_bench measures: the CNN and ResNet-50 in three ways to compute, and a
// Transformer encoder in bfloat16, each with algorithms that are found by time and with those of
// the deterministic mode, which programs have by default.
#pragma once

#include <string>
#include <vector>

#include "base/shape.h"
#include "bench/harness.h"
#include "train/model.h"

namespace monograph::bench {

struct GpuMode {
  bool allow_tf32 = false;
  bool deterministic = false;
  bool programmatic = false;  // GpuOptions::programmatic_dependent_launch
};

struct GpuStep {
  std::string name;   // no step's is a part of another's: --case picks one
  std::string peers;  // what bench/peers/torch_gpu.py calls it
  ModelFn model;
  Shape images;
  GpuMode mode;
};

std::vector<GpuStep> GpuSteps();

// Of the CNN and of ResNet-50, in float32 and the deterministic mode, for a comparison of losses.
// `small`: of few images and units.
std::vector<GpuStep> LossSteps(bool small);

// Of a step against the libraries' own calls, and against each of torch's sides.
inline constexpr Goal kGoalOfCalls{0.95, Goal::kMin}, kGoalOfTorch{1.0, Goal::kMin};

// torch's sides of a step: eager and compiled. `torch` must outlive them.
std::vector<Side> TorchSides(Peer& torch, const GpuStep& step);

}  // namespace monograph::bench
