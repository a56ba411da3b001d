// The rules of the five optimizers. An update is one node, whose formula is in
// ops/training/training.h. Rows of one index are added up first, but for GradientDescent, which
// subtracts one after the other.
#include <string>
#include <utility>

#include "ops/elementwise/elementwise.h"
#include "ops/sparse_training/sparse_training.h"
#include "ops/training/training.h"
#include "ops/variable/variable.h"
#include "train/optimizer.h"

namespace monograph {

Optimizer GradientDescent(LearningRate learning_rate) {
  OptimizerRule rule{.name = "GradientDescent", .rate = std::move(learning_rate)};
  rule.dense = [](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    return ResourceApplyGradientDescent(scope, in.variable, in.rate(), gradient);
  };
  rule.sparse = [](const Scope& scope, const UpdateInputs& in, const Gradient& rows) {
    return ResourceScatterSub(scope, in.variable, rows.indices, Mul(scope, rows.values, in.rate()));
  };
  return Optimizer(std::move(rule));
}

Optimizer Momentum(LearningRate learning_rate, double momentum, bool use_nesterov) {
  OptimizerRule rule{
      .name = "Momentum", .rate = std::move(learning_rate), .slots = {{"momentum", 0}}};
  rule.dense = [=](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    return ResourceApplyMomentum(scope, in.variable, in.slots[0], in.rate(), gradient,
                                 in.number(momentum), use_nesterov);
  };
  rule.sparse = [=](const Scope& scope, const UpdateInputs& in, const Gradient& rows) {
    return ResourceSparseApplyMomentum(scope, in.variable, in.slots[0], in.rate(),
                                       SumRepeatedRows(scope, rows), in.number(momentum),
                                       use_nesterov);
  };
  return Optimizer(std::move(rule));
}

Optimizer Adagrad(LearningRate learning_rate, double initial_accumulator_value) {
  OptimizerRule rule{.name = "Adagrad",
                     .rate = std::move(learning_rate),
                     .slots = {{"accumulator", initial_accumulator_value}}};
  // If it were 0, an element without a gradient would become 0 / 0.
  if (!(initial_accumulator_value > 0)) {
    rule.status = InvalidArgument("Adagrad: initial_accumulator_value must be positive: " +
                                  std::to_string(initial_accumulator_value));
  }
  rule.dense = [](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    return ResourceApplyAdagrad(scope, in.variable, in.slots[0], in.rate(), gradient);
  };
  rule.sparse = [](const Scope& scope, const UpdateInputs& in, const Gradient& rows) {
    return ResourceSparseApplyAdagrad(scope, in.variable, in.slots[0], in.rate(),
                                      SumRepeatedRows(scope, rows));
  };
  return Optimizer(std::move(rule));
}

namespace {

OptimizerRule PlainRMSProp(LearningRate rate, double decay, double momentum, double epsilon) {
  OptimizerRule rule{
      .name = "RMSProp", .rate = std::move(rate), .slots = {{"rms", 1}, {"momentum", 0}}};
  rule.dense = [=](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    return ResourceApplyRMSProp(scope, in.variable, in.slots[0], in.slots[1], in.rate(),
                                in.number(decay), in.number(momentum), in.number(epsilon),
                                gradient);
  };
  rule.sparse = [=](const Scope& scope, const UpdateInputs& in, const Gradient& rows) {
    return ResourceSparseApplyRMSProp(scope, in.variable, in.slots[0], in.slots[1], in.rate(),
                                      in.number(decay), in.number(momentum), in.number(epsilon),
                                      SumRepeatedRows(scope, rows));
  };
  return rule;
}

OptimizerRule CenteredRMSProp(LearningRate rate, double decay, double momentum, double epsilon) {
  OptimizerRule rule{.name = "RMSProp",
                     .rate = std::move(rate),
                     .slots = {{"rms", 1}, {"mg", 0}, {"momentum", 0}}};
  rule.dense = [=](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    return ResourceApplyCenteredRMSProp(scope, in.variable, in.slots[1], in.slots[0], in.slots[2],
                                        in.rate(), in.number(decay), in.number(momentum),
                                        in.number(epsilon), gradient);
  };
  rule.sparse = [=](const Scope& scope, const UpdateInputs& in, const Gradient& rows) {
    return ResourceSparseApplyCenteredRMSProp(
        scope, in.variable, in.slots[1], in.slots[0], in.slots[2], in.rate(), in.number(decay),
        in.number(momentum), in.number(epsilon), SumRepeatedRows(scope, rows));
  };
  return rule;
}

}  // namespace

Optimizer RMSProp(LearningRate learning_rate, double decay, double momentum, double epsilon,
                  bool centered) {
  const auto rule = centered ? CenteredRMSProp : PlainRMSProp;
  return Optimizer(rule(std::move(learning_rate), decay, momentum, epsilon));
}

// Adam changes every row, also those without a gradient, so the rows become a dense gradient: one
// pass to add them up and one to apply, where row by row would need five.
Optimizer Adam(LearningRate learning_rate, double beta1, double beta2, double epsilon) {
  OptimizerRule rule{.name = "Adam",
                     .rate = std::move(learning_rate),
                     .slots = {{"m", 0}, {"v", 0}},
                     .powers = {{"beta1_power", beta1}, {"beta2_power", beta2}}};
  rule.dense = [=](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    return ResourceApplyAdam(scope, in.variable, in.slots[0], in.slots[1], in.power(0), in.power(1),
                             in.rate(), in.number(beta1), in.number(beta2), in.number(epsilon),
                             gradient);
  };
  return Optimizer(std::move(rule));
}

}  // namespace monograph
