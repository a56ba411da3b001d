// Learning rates: a number, a tensor, or a schedule over the global step, with TensorFlow's
// formulas.
//
//   Adam(1e-4)
//   Adam(rate)  // a tensor: a placeholder, a variable's value, ...
//   Momentum(ExponentialDecay(0.1, 1000, 0.96), 0.9)  // a schedule over the global step
//   Output rate = CosineDecay(0.1, 10000)(scope, global_step.value);  // by hand
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "graph/scope.h"

namespace monograph {

// Builds the rate of a step, a float scalar, on the scope's device. `global_step` is an integer
// scalar, the number of updates before this one.
using Schedule = std::function<Output(const Scope& scope, Output global_step)>;

// Steps are positive numbers. As in TensorFlow the step is a float: exact up to 16 million.

// rate * decay_rate ^ (step / decay_steps); `staircase` takes the whole part of the quotient.
Schedule ExponentialDecay(double rate, double decay_steps, double decay_rate,
                          bool staircase = false);
// rate * e ^ (-decay_rate * step / decay_steps)
Schedule NaturalExpDecay(double rate, double decay_steps, double decay_rate,
                         bool staircase = false);
// rate / (1 + decay_rate * step / decay_steps)
Schedule InverseTimeDecay(double rate, double decay_steps, double decay_rate,
                          bool staircase = false);
// values[0] up to and at step boundaries[0], then values[1] up to and at boundaries[1], ...; one
// value more than boundaries, which increase.
Schedule PiecewiseConstant(std::vector<int64_t> boundaries, std::vector<double> values);
// From `rate` to `end_rate` in decay_steps: (rate - end_rate) * (1 - step / decay_steps) ^ power +
// end_rate. Then it stays, or with `cycle` goes on with the first multiple of decay_steps beyond
// the step in place of decay_steps.
Schedule PolynomialDecay(double rate, double decay_steps, double end_rate = 1e-4, double power = 1,
                         bool cycle = false);
// From `rate` to alpha * rate in decay_steps along half a cosine; then it stays.
Schedule CosineDecay(double rate, double decay_steps, double alpha = 0);
// The same again and again: each period is t_mul times as long as the one before, and starts at
// m_mul times its rate.
Schedule CosineDecayRestarts(double rate, double first_decay_steps, double t_mul = 2,
                             double m_mul = 1, double alpha = 0);

// A value; cheap to copy. A tensor ties it to its graph.
class LearningRate {
 public:
  LearningRate(double value) : value_(value) {}           // NOLINT(runtime/explicit)
  LearningRate(const Output& scalar) : value_(scalar) {}  // NOLINT(runtime/explicit)
  template <std::invocable<const Scope&, Output> F>
  LearningRate(F schedule) : value_(Schedule(std::move(schedule))) {}  // NOLINT(runtime/explicit)

  // nullptr if it is no number that is known while building.
  const double* number() const { return std::get_if<double>(&value_); }
  // The scalar of a tensor or a schedule. A schedule is built in `scope`, which fails if
  // `global_step` is invalid. REQUIRES: not a number.
  Output Build(const Scope& scope, const Output& global_step) const;

 private:
  std::variant<double, Output, Schedule> value_;
};

}  // namespace monograph
