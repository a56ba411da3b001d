// Clipping and regularisation, with TensorFlow's formulas. Each tensor is processed on its own
// device; only scalars cross devices.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

// Element by element into [low, high].
Output ClipByValue(const Scope& scope, const Output& t, double low, double high);

// t * clip_norm / max(l2 norm of t, clip_norm). `axes` gives each slice along them a norm of its
// own; empty: one norm for all of t.
Output ClipByNorm(const Scope& scope, const Output& t, double clip_norm,
                  std::span<const int64_t> axes = {});

// The l2 norm of all elements of all tensors; invalid tensors are left out.
Output GlobalNorm(const Scope& scope, std::span<const Output> tensors);

struct ClippedByGlobalNorm {
  Outputs tensors;
  Output norm;  // before clipping
};
// Every tensor times clip_norm / max(global norm, clip_norm): directions stay. If the norm is
// infinite or NaN, so that training cannot go on, every element becomes NaN. Invalid tensors stay
// invalid.
ClippedByGlobalNorm ClipByGlobalNorm(const Scope& scope, std::span<const Output> tensors,
                                     double clip_norm);

// The same for gradients between ComputeGradients and ApplyGradients. Of a sparse gradient the rows
// count as they are, rows of one index one by one.
struct ClippedGradients {
  std::vector<GradientAndVariable> pairs;
  Output norm;
};
ClippedGradients ClipByGlobalNorm(const Scope& scope, std::span<const GradientAndVariable> pairs,
                                  double clip_norm);

// A penalty on a weight tensor, a scalar to be added to the loss.
using Regularizer = std::function<Output(const Scope& scope, const Output& weights)>;
Regularizer L2Regularizer(double scale);  // scale * sum(w^2) / 2
Regularizer L1Regularizer(double scale);  // scale * sum(|w|)
// The sum of the penalties of all `variables`, each computed on its variable's device.
Output ApplyRegularization(const Scope& scope, const Regularizer& regularizer,
                           std::span<const ModelVariable> variables);

}  // namespace monograph
