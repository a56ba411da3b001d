// An optimizer as a program writes one of its own. docs/training.md shows the lines between the
// marks; own_rule_test.cc compares.
#pragma once

#include <utility>

#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"
#include "train/optimizer.h"

namespace monograph {

// [rule]
// Every weight moves by the learning rate in the direction that its mean gradient has lately had.
inline Optimizer SignMomentum(LearningRate rate, double decay) {
  OptimizerRule rule{.name = "SignMomentum", .rate = std::move(rate), .slots = {{"momentum"}}};
  rule.dense = [decay](const Scope& scope, const UpdateInputs& in, const Output& gradient) {
    const Output before = ReadVariable(scope, in.slots[0]);
    const Output momentum = Add(scope, Mul(scope, before, in.number(decay)), gradient);
    const Output move = Mul(scope, Sign(scope, momentum), in.rate());
    return Group(scope, {AssignVariable(scope, in.slots[0], momentum),
                         AssignSubVariable(scope, in.variable, move)});
  };
  return Optimizer(std::move(rule));
}
// [rule]

}  // namespace monograph
