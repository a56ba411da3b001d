// What each optimizer does with one element of a variable, its slots and the gradient: one formula
// for dense and sparse updates, on CPUs and GPUs. A is the type to compute with.
//
// A formula has
//   kVariables     how many values it updates: the variable, then its slots
//   kCoefficients  how many numbers Make needs, in the order of the op's inputs
//   Make(values, flag)       `flag` is use_nesterov or update_slots; none: the values are its members
//   (old, g, fresh)          fresh[0..kVariables) from old[0..kVariables) and the gradient g
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>

#include "ops/gpu/device_code.h"

namespace monograph::ops::training {

template <typename Formula, typename A, size_t... kIs>
MG_HD Formula MakeOfMembers(const A* values, std::index_sequence<kIs...>) {
  return {values[kIs]...};
}
template <typename Formula, typename A>
MG_HD Formula MakeFormula(const A* values, bool flag) {
  if constexpr (requires { Formula::Make(values, flag); }) {
    return Formula::Make(values, flag);
  } else {
    return MakeOfMembers<Formula>(values, std::make_index_sequence<Formula::kCoefficients>());
  }
}

template <typename A>
struct GradientDescentFormula {
  static constexpr int kVariables = 1, kCoefficients = 1;
  MG_HD void operator()(const A* old, A g, A* fresh) const { fresh[0] = old[0] - g * alpha; }
  A alpha;
};

template <typename A>
struct MomentumFormula {
  static constexpr int kVariables = 2, kCoefficients = 2;
  MG_HD static MomentumFormula Make(const A* values, bool nesterov) {
    return {values[0], values[1], nesterov};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A a = old[1] * momentum + g;
    fresh[1] = a;
    fresh[0] = old[0] - (nesterov ? g * lr + a * momentum * lr : a * lr);
  }
  A lr, momentum;
  bool nesterov;
};

// The accumulator holds steps, with their rate and sign.
template <typename A>
struct KerasMomentumFormula {
  static constexpr int kVariables = 2, kCoefficients = 2;
  MG_HD static KerasMomentumFormula Make(const A* values, bool nesterov) {
    return {values[0], values[1], nesterov};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A a = old[1] * momentum - g * lr;
    fresh[1] = a;
    fresh[0] = old[0] + (nesterov ? a * momentum - g * lr : a);
  }
  A lr, momentum;
  bool nesterov;
};

// Coefficients: beta1_power, beta2_power, lr, beta1, beta2, epsilon.
template <typename A>
struct AdamFormula {
  static constexpr int kVariables = 3, kCoefficients = 6;
  MG_HD static AdamFormula Make(const A* values, bool nesterov) {
    return {values[2] * std::sqrt(A(1) - values[1]) / (A(1) - values[0]),
            values[3],
            A(1) - values[3],
            A(1) - values[4],
            values[5],
            nesterov};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A m = old[1] + (g - old[1]) * one_minus_beta1,
            v = old[2] + (g * g - old[2]) * one_minus_beta2;
    const A step = nesterov ? g * one_minus_beta1 + beta1 * m : m;
    fresh[1] = m;
    fresh[2] = v;
    fresh[0] = old[0] - step * alpha / (std::sqrt(v) + epsilon);
  }
  A alpha, beta1, one_minus_beta1, one_minus_beta2, epsilon;
  bool nesterov;
};

// Adam with the largest v so far, vhat, in place of v. Coefficients as Adam's. Slots: m, v, vhat.
template <typename A>
struct AmsgradFormula {
  static constexpr int kVariables = 4, kCoefficients = 6;
  MG_HD static AmsgradFormula Make(const A* values, bool) {
    return {values[2] * std::sqrt(A(1) - values[1]) / (A(1) - values[0]), A(1) - values[3],
            A(1) - values[4], values[5]};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A m = old[1] + (g - old[1]) * one_minus_beta1,
            v = old[2] + (g * g - old[2]) * one_minus_beta2;
    const A vhat = old[3] < v ? v : old[3];
    fresh[1] = m;
    fresh[2] = v;
    fresh[3] = vhat;
    fresh[0] = old[0] - m * alpha / (std::sqrt(vhat) + epsilon);
  }
  A alpha, one_minus_beta1, one_minus_beta2, epsilon;
};

// Adagrad, and V2 with its epsilon.
template <typename A, bool kEpsilon>
struct AdagradFormula {
  static constexpr int kVariables = 2, kCoefficients = kEpsilon ? 2 : 1;
  MG_HD static AdagradFormula Make(const A* values, bool update_slots) {
    return {values[0], kEpsilon ? values[kCoefficients - 1] : A(0), update_slots};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A a = old[1] + (update ? g * g : A(0));
    fresh[1] = a;
    fresh[0] = old[0] - g * lr / (std::sqrt(a) + epsilon);
  }
  A lr, epsilon;
  bool update;
};

template <typename A>
using AdagradV1 = AdagradFormula<A, false>;
template <typename A>
using AdagradV2 = AdagradFormula<A, true>;

// Coefficients: lr, rho, momentum, epsilon.
template <typename A>
struct RMSPropFormula {
  static constexpr int kVariables = 3, kCoefficients = 4;
  MG_HD static RMSPropFormula Make(const A* values, bool) {
    return {values[0], A(1) - values[1], values[2], values[3]};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A s = old[1] + (g * g - old[1]) * one_minus_rho;
    const A d = old[2] * momentum + g * lr / std::sqrt(s + epsilon);
    fresh[1] = s;
    fresh[2] = d;
    fresh[0] = old[0] - d;
  }
  A lr, one_minus_rho, momentum, epsilon;
};

// Coefficients: lr, rho, momentum, epsilon. Slots: mg, ms, mom.
template <typename A>
struct CenteredRMSPropFormula {
  static constexpr int kVariables = 4, kCoefficients = 4;
  MG_HD static CenteredRMSPropFormula Make(const A* values, bool) {
    return {values[0], A(1) - values[1], values[2], values[3]};
  }
  MG_HD void operator()(const A* old, A g, A* fresh) const {
    const A m = old[1] + (g - old[1]) * one_minus_rho,
            s = old[2] + (g * g - old[2]) * one_minus_rho;
    const A d = old[3] * momentum + g * lr / std::sqrt(s - m * m + epsilon);
    fresh[1] = m;
    fresh[2] = s;
    fresh[3] = d;
    fresh[0] = old[0] - d;
  }
  A lr, one_minus_rho, momentum, epsilon;
};

// Where the kernels of an op find their inputs, and what the op's flag is called. Variables and
// slots are inputs 0 on.
struct UpdateInputs {
  int variables;
  const char* flag;  // attribute; nullptr: none
  bool flag_default;
  int coefficients[6];  // as many as the formula has; 0 behind them
  int gradient;
};

inline constexpr UpdateInputs kGradientDescent = {1, nullptr, false, {1}, 2};
inline constexpr UpdateInputs kMomentum = {2, "use_nesterov", false, {2, 4}, 3};
inline constexpr UpdateInputs kAdam = {3, "use_nesterov", false, {3, 4, 5, 6, 7, 8}, 9};
inline constexpr UpdateInputs kAmsgrad = {4, nullptr, false, {4, 5, 6, 7, 8, 9}, 10};
inline constexpr UpdateInputs kAdagrad = {2, "update_slots", true, {2}, 3};
inline constexpr UpdateInputs kAdagradV2 = {2, "update_slots", true, {2, 3}, 4};
inline constexpr UpdateInputs kRMSProp = {3, nullptr, false, {3, 4, 5, 6}, 7};
inline constexpr UpdateInputs kCenteredRMSProp = {4, nullptr, false, {4, 5, 6, 7}, 8};
// With rows: the indices are the input behind the gradient, and Momentum's momentum behind them.
inline constexpr UpdateInputs kSparseMomentum = {2, "use_nesterov", false, {2, 5}, 3};

// Calls fn.operator()<Formula, kInputs>(op, {names of its variables}) for each update of whole
// variables.
template <typename Fn>
void ForEachUpdate(const Fn& fn) {
  fn.template operator()<GradientDescentFormula, kGradientDescent>("ResourceApplyGradientDescent",
                                                                   {"var"});
  fn.template operator()<MomentumFormula, kMomentum>("ResourceApplyMomentum", {"var", "accum"});
  fn.template operator()<KerasMomentumFormula, kMomentum>("ResourceApplyKerasMomentum",
                                                          {"var", "accum"});
  fn.template operator()<AdamFormula, kAdam>("ResourceApplyAdam", {"var", "m", "v"});
  fn.template operator()<AmsgradFormula, kAmsgrad>("ResourceApplyAdamWithAmsgrad",
                                                   {"var", "m", "v", "vhat"});
  fn.template operator()<AdagradV1, kAdagrad>("ResourceApplyAdagrad", {"var", "accum"});
  fn.template operator()<AdagradV2, kAdagradV2>("ResourceApplyAdagradV2", {"var", "accum"});
  fn.template operator()<RMSPropFormula, kRMSProp>("ResourceApplyRMSProp", {"var", "ms", "mom"});
  fn.template operator()<CenteredRMSPropFormula, kCenteredRMSProp>("ResourceApplyCenteredRMSProp",
                                                                   {"var", "mg", "ms", "mom"});
}

// The same for each update of rows.
template <typename Fn>
void ForEachUpdateOfRows(const Fn& fn) {
  fn.template operator()<MomentumFormula, kSparseMomentum>("ResourceSparseApplyMomentum",
                                                           {"var", "accum"});
  fn.template operator()<KerasMomentumFormula, kSparseMomentum>("ResourceSparseApplyKerasMomentum",
                                                                {"var", "accum"});
  fn.template operator()<AdagradV1, kAdagrad>("ResourceSparseApplyAdagrad", {"var", "accum"});
  fn.template operator()<AdagradV2, kAdagradV2>("ResourceSparseApplyAdagradV2", {"var", "accum"});
  fn.template operator()<RMSPropFormula, kRMSProp>("ResourceSparseApplyRMSProp",
                                                   {"var", "ms", "mom"});
  fn.template operator()<CenteredRMSPropFormula, kCenteredRMSProp>(
      "ResourceSparseApplyCenteredRMSProp", {"var", "mg", "ms", "mom"});
}

}  // namespace monograph::ops::training
