// Loss scaling: keeps gradients that are computed in half from becoming zero. The loss is
// multiplied by a large power of two, and the gradients are divided by it before they are used.
//
//   LossScale scaling(root, {}, &init);
//   auto pairs = ComputeGradients(root, scaling.Scaled(root, loss), variables);
//   UnscaledGradients unscaled = scaling.Unscaled(root, *pairs);
//   Operation train = adam.ApplyGradients(root, unscaled.pairs, &init);
//   run {train, unscaled.update}
//
// Replicate does it by itself: ReplicateOptions::loss_scale.
//
// Weights best stay float and are cast for the products (Cast's gradient is float again): then
// nothing is lost when gradients are divided. bfloat16 has float's range and needs no scaling.
#pragma once

#include <span>
#include <vector>

#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

struct LossScaleOptions {
  double initial = 32768;
  // The scale is halved after a step with a gradient that is not finite, and doubled, up to
  // `largest`, after `growth_steps` good ones in a row. False: it stays as it is.
  bool dynamic = true;
  int64_t growth_steps = 2000;
  double largest = 16777216;
};

struct UnscaledGradients {
  // Those of the loss itself. If any of them is not finite, all are zero in that step: plain
  // gradient descent then changes nothing; moments go on as if the gradient were zero.
  std::vector<GradientAndVariable> pairs;
  Output finite;     // bool
  Operation update;  // of the scale: to run once in each step
};

class LossScale {
 public:
  // Makes the variables "loss_scale" and "loss_scale_good_steps" on the scope's device, with
  // initializers appended to `initializers`.
  LossScale(const Scope& scope, const LossScaleOptions& options,
            std::vector<Operation>* initializers);

  Output Scaled(const Scope& scope, const Output& loss) const;
  // Pairs without a gradient stay so.
  UnscaledGradients Unscaled(const Scope& scope, std::span<const GradientAndVariable> pairs) const;

  const ModelVariable& variable() const { return scale_; }
  std::vector<Operation> initializers() const {
    return {scale_.initializer, good_steps_.initializer};
  }

 private:
  Operation Update(const Scope& scope, const Output& finite) const;

  LossScaleOptions options_;
  ModelVariable scale_, good_steps_;
};

}  // namespace monograph
