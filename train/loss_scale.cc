#include "train/loss_scale.h"

#include <cmath>

#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/select/select.h"
#include "ops/variable/variable.h"

namespace monograph {

LossScale::LossScale(const Scope& scope, const LossScaleOptions& options,
                     std::vector<Operation>* initializers)
    : options_(options) {
  if (!(options.initial >= 1) || !(options.largest >= options.initial) ||
      options.growth_steps < 1) {
    scope.Fail(InvalidArgument(
        "LossScale: 1 <= initial <= largest and growth_steps >= 1 are needed, got initial " +
        std::to_string(options.initial) + ", largest " + std::to_string(options.largest) +
        ", growth_steps " + std::to_string(options.growth_steps)));
    return;
  }
  scale_ = MakeVariable(scope, "loss_scale", ScalarConst(scope, options.initial, DT_FLOAT));
  good_steps_ = MakeVariable(scope, "loss_scale_good_steps", ScalarConst(scope, 0, DT_FLOAT));
  initializers->push_back(scale_.initializer);
  initializers->push_back(good_steps_.initializer);
}

Output LossScale::Scaled(const Scope& scope, const Output& loss) const {
  if (!scope.ok() || !loss.valid()) return {};
  const Scope s = scope.SubScope("loss_scale");
  return Mul(s, loss, Cast(s, scale_.value, loss.dtype()));
}

UnscaledGradients LossScale::Unscaled(const Scope& scope,
                                      std::span<const GradientAndVariable> pairs) const {
  UnscaledGradients unscaled;
  if (!scope.ok()) return unscaled;
  const Scope s = scope.SubScope("unscale");
  unscaled.finite = Const(s, Tensor::Scalar<bool>(true));
  for (const GradientAndVariable& pair : pairs) {
    if (!pair.gradient.valid()) continue;
    const Scope beside = s.ColocateWith(pair.gradient);
    const Output good =
        All(beside, IsFinite(beside, pair.gradient), AllAxes(beside, pair.gradient));
    unscaled.finite = LogicalAnd(s, unscaled.finite, good);
  }
  const Output inverse = Reciprocal(s, scale_.value);
  for (const GradientAndVariable& pair : pairs) {
    unscaled.pairs.push_back(pair);
    if (!pair.gradient.valid()) continue;
    const Scope beside = s.ColocateWith(pair.gradient);
    const DType dtype = pair.gradient.dtype();
    unscaled.pairs.back().gradient =
        Select(beside, unscaled.finite, Mul(beside, pair.gradient, Cast(beside, inverse, dtype)),
               ScalarConst(beside, 0, dtype));
  }
  unscaled.update = Update(scope.SubScope("loss_scale_update"), unscaled.finite);
  return unscaled;
}

// Everything is computed from the one read of the scale that the gradients use, too; the
// assignments come after it.
Operation LossScale::Update(const Scope& s, const Output& finite) const {
  if (!options_.dynamic) return NoOp(s);
  const auto number = [&](double value) { return ScalarConst(s, value, DT_FLOAT); };
  const Output steps = Add(s, good_steps_.value, number(1));
  const Output grows = GreaterEqual(s, steps, number(static_cast<double>(options_.growth_steps)));
  const Output twice = Minimum(s, Mul(s, scale_.value, number(2)), number(options_.largest));
  const Output half = Maximum(s, Mul(s, scale_.value, number(0.5)), number(1));
  const Output scale = Select(s, finite, Select(s, grows, twice, scale_.value), half);
  const Output good = Select(s, finite, Select(s, grows, number(0), steps), number(0));
  return NoOp(s.WithControlDependencies(
      {AssignVariable(s, scale_.handle, scale), AssignVariable(s, good_steps_.handle, good)}));
}

}  // namespace monograph
