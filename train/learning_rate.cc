// Learning-rate schedules as nodes of the graph: each is a formula over the global step, computed
// anew in every step. A rate that the client feeds would be simpler, but where several clients
// train asynchronously no client knows the global step of an update. Errors in a schedule's
// parameters are reported when its nodes are built, since that is where there is a scope to fail.
#include "train/learning_rate.h"

#include <cmath>
#include <numbers>
#include <string>

#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/select/select.h"

namespace monograph {
namespace {

Output Number(const Scope& scope, double value) { return ScalarConst(scope, value, DT_FLOAT); }

// A schedule that builds its nodes in a scope called `name`. If `invalid` is not empty, it says
// which parameter is wrong, and building fails with it.
Schedule Named(std::string name, std::string invalid,
               std::function<Output(const Scope&, Output)> formula) {
  return [name = std::move(name), invalid = std::move(invalid), formula = std::move(formula)](
             const Scope& scope, Output global_step) {
    if (!invalid.empty()) scope.Fail(InvalidArgument(name + ": " + invalid));
    if (scope.ok() && !global_step.valid())
      scope.Fail(InvalidArgument(name + ": needs a global_step"));
    if (!scope.ok()) return Output();
    return formula(scope.SubScope(name), global_step);
  };
}

std::string CheckSteps(const char* what, double steps) {
  return steps > 0 ? std::string()
                   : std::string(what) + " must be positive, got " + std::to_string(steps);
}

// step / decay_steps
Output Periods(const Scope& scope, const Output& global_step, double decay_steps, bool staircase) {
  const Output periods =
      RealDiv(scope, Cast(scope, global_step, DT_FLOAT), Number(scope, decay_steps));
  return staircase ? Floor(scope, periods) : periods;
}

// (1 - alpha) * scale * (1 + cos(pi x)) / 2 + alpha
Output HalfCosine(const Scope& scope, const Output& x, const Output& scale, double alpha) {
  const Output cosine = Cos(scope, Mul(scope, Number(scope, std::numbers::pi), x));
  const Output half = Mul(scope, scale, Add(scope, Number(scope, 1), cosine));
  return Add(scope, Mul(scope, Number(scope, 1 - alpha), half), Number(scope, alpha));
}

}  // namespace

Schedule ExponentialDecay(double rate, double decay_steps, double decay_rate, bool staircase) {
  return Named(
      "ExponentialDecay", CheckSteps("decay_steps", decay_steps), [=](const Scope& s, Output step) {
        return Mul(s, Number(s, rate),
                   Pow(s, Number(s, decay_rate), Periods(s, step, decay_steps, staircase)));
      });
}

Schedule NaturalExpDecay(double rate, double decay_steps, double decay_rate, bool staircase) {
  return Named("NaturalExpDecay", CheckSteps("decay_steps", decay_steps),
               [=](const Scope& s, Output step) {
                 const Output exponent =
                     Mul(s, Number(s, -decay_rate), Periods(s, step, decay_steps, staircase));
                 return Mul(s, Number(s, rate), Exp(s, exponent));
               });
}

Schedule InverseTimeDecay(double rate, double decay_steps, double decay_rate, bool staircase) {
  return Named("InverseTimeDecay", CheckSteps("decay_steps", decay_steps),
               [=](const Scope& s, Output step) {
                 const Output growth =
                     Mul(s, Number(s, decay_rate), Periods(s, step, decay_steps, staircase));
                 return RealDiv(s, Number(s, rate), Add(s, Number(s, 1), growth));
               });
}

Schedule PiecewiseConstant(std::vector<int64_t> boundaries, std::vector<double> values) {
  std::string invalid;
  if (values.size() != boundaries.size() + 1) {
    invalid = std::to_string(boundaries.size()) + " boundaries need " +
              std::to_string(boundaries.size() + 1) + " values, got " +
              std::to_string(values.size());
  }
  for (size_t i = 1; i < boundaries.size() && invalid.empty(); ++i) {
    if (boundaries[i] <= boundaries[i - 1]) {
      invalid = "boundaries must increase, got " + std::to_string(boundaries[i]) + " after " +
                std::to_string(boundaries[i - 1]);
    }
  }
  return Named("PiecewiseConstant", invalid,
               [boundaries = std::move(boundaries), values = std::move(values)](const Scope& s,
                                                                                Output step) {
                 Output rate = Number(s, values.back());
                 const Output whole_step = Cast(s, step, DT_INT64);
                 for (size_t i = boundaries.size(); i-- > 0;) {
                   rate = Select(s, LessEqual(s, whole_step, Const(s, boundaries[i])),
                                 Number(s, values[i]), rate);
                 }
                 return rate;
               });
}

Schedule PolynomialDecay(double rate, double decay_steps, double end_rate, double power,
                         bool cycle) {
  return Named("PolynomialDecay", CheckSteps("decay_steps", decay_steps),
               [=](const Scope& s, Output global_step) {
                 Output step = Cast(s, global_step, DT_FLOAT), steps = Number(s, decay_steps);
                 if (cycle) {
                   const Output cycles = Maximum(s, Number(s, 1), Ceil(s, RealDiv(s, step, steps)));
                   steps = Mul(s, steps, cycles);
                 } else {
                   step = Minimum(s, step, steps);
                 }
                 const Output left = Sub(s, Number(s, 1), RealDiv(s, step, steps));
                 return Add(s, Mul(s, Number(s, rate - end_rate), Pow(s, left, Number(s, power))),
                            Number(s, end_rate));
               });
}

Schedule CosineDecay(double rate, double decay_steps, double alpha) {
  return Named(
      "CosineDecay", CheckSteps("decay_steps", decay_steps), [=](const Scope& s, Output step) {
        const Output steps = Number(s, decay_steps);
        const Output completed = RealDiv(s, Minimum(s, Cast(s, step, DT_FLOAT), steps), steps);
        return Mul(s, Number(s, rate), HalfCosine(s, completed, Number(s, 0.5), alpha));
      });
}

Schedule CosineDecayRestarts(double rate, double first_decay_steps, double t_mul, double m_mul,
                             double alpha) {
  std::string invalid = CheckSteps("first_decay_steps", first_decay_steps);
  if (invalid.empty() && t_mul < 1)
    invalid = "t_mul must be at least 1, got " + std::to_string(t_mul);
  return Named("CosineDecayRestarts", invalid, [=](const Scope& s, Output step) {
    const Output periods = Periods(s, step, first_decay_steps, false);
    Output restarts, completed;  // whole periods before this one; elapsed part of this one
    if (t_mul == 1) {
      restarts = Floor(s, periods);
      completed = Sub(s, periods, restarts);
    } else {
      // Period i is t_mul^i times first_decay_steps long. With lengths in units of
      // first_decay_steps, it begins at
      //   (1 - t_mul^i) / (1 - t_mul)
      // and so a step `periods` lies in period
      //   i = floor(log(1 - periods * (1 - t_mul)) / log(t_mul))
      const Output grown = Sub(s, Number(s, 1), Mul(s, periods, Number(s, 1 - t_mul)));
      restarts = Floor(s, RealDiv(s, Log(s, grown), Number(s, std::log(t_mul))));
      const Output length = Pow(s, Number(s, t_mul), restarts);
      const Output begin = RealDiv(s, Sub(s, Number(s, 1), length), Number(s, 1 - t_mul));
      completed = RealDiv(s, Sub(s, periods, begin), length);
    }
    const Output scale = Mul(s, Number(s, 0.5), Pow(s, Number(s, m_mul), restarts));
    return Mul(s, Number(s, rate), HalfCosine(s, completed, scale, alpha));
  });
}

Output LearningRate::Build(const Scope& scope, const Output& global_step) const {
  Output rate;
  if (const Output* tensor = std::get_if<Output>(&value_)) {
    rate = *tensor;
  } else if (!global_step.valid()) {
    scope.Fail(
        InvalidArgument("the learning rate is a schedule over the global step: give ApplyGradients "
                        "the global_step that it shall count"));
  } else {
    rate = std::get<Schedule>(value_)(scope, global_step);
  }
  if (!scope.ok()) return {};
  if (!rate.valid() || rate.graph != scope.graph()) {
    scope.Fail(InvalidArgument("the learning rate is no tensor of this graph"));
  } else if (!IsFloating(rate.dtype()) || (rate.shape().known_rank() && rate.shape().rank() != 0)) {
    scope.Fail(InvalidArgument("the learning rate must be a floating-point scalar, but '" +
                               rate.name() + "' is " + std::string(DTypeName(rate.dtype())) +
                               rate.shape().ToString()));
  }
  return rate;
}

}  // namespace monograph
