// The formulas of optimizers that have kernels for CPUs alone, as in formulas.h; those of
// TensorFlow's kernels. g is the gradient.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/training/formulas.h"

namespace monograph::ops::training {

template <typename A>
inline A Sign(A x) {
  return A(x > A(0)) - A(x < A(0));
}

// Coefficients: lr, rho, epsilon. Slots: accum, accum_update.
template <typename A>
struct AdadeltaFormula {
  static constexpr int kVariables = 3, kCoefficients = 3;
  void operator()(const A* old, A g, A* fresh) const {
    const A accum = old[1] * rho + g * g * (A(1) - rho);
    const A update = std::sqrt(old[2] + epsilon) / std::sqrt(accum + epsilon) * g;
    fresh[0] = old[0] - update * lr;
    fresh[1] = accum;
    fresh[2] = old[2] * rho + update * update * (A(1) - rho);
  }
  A lr, rho, epsilon;
};

// Coefficients: lr, l1, l2, [l2_shrinkage,] lr_power. Slots: accum, linear. The flag: linear is
// kept multiplied by lr.
template <typename A, bool kShrinks>
struct FtrlFormula {
  static constexpr int kVariables = 3, kCoefficients = kShrinks ? 5 : 4;
  static FtrlFormula Make(const A* values, bool multiplied) {
    return {values[0], values[1], values[2], kShrinks ? values[3] : A(0), values[kCoefficients - 1],
            multiplied};
  }
  void operator()(const A* old, A g, A* fresh) const {
    const A accum = old[1] + g * g, shrunk = g + A(2) * shrinkage * old[0];
    const A power = Power(accum), by = power - Power(old[1]);
    const A linear = old[2] + (multiplied ? shrunk * lr - by * old[0] : shrunk - by / lr * old[0]);
    const A least = multiplied ? l1 * lr : l1;
    const A divisor = multiplied ? power + A(2) * l2 * lr : power / lr + A(2) * l2;
    fresh[0] = std::abs(linear) > least ? (least * Sign(linear) - linear) / divisor : A(0);
    fresh[1] = accum;
    fresh[2] = linear;
  }
  A Power(A x) const { return lr_power == A(-0.5) ? std::sqrt(x) : std::pow(x, -lr_power); }
  A lr, l1, l2, shrinkage, lr_power;
  bool multiplied;
};

template <typename A>
using FtrlV1 = FtrlFormula<A, false>;
template <typename A>
using FtrlV2 = FtrlFormula<A, true>;

// The value next to `x` that l1 and l2 make of it at rate `lr`.
template <typename A>
inline A Proximal(A x, A lr, A l1, A l2) {
  if (l1 > A(0)) x = Sign(x) * std::max(std::abs(x) - lr * l1, A(0));
  return x / (A(1) + l2 * lr);
}

// Coefficients: alpha, l1, l2.
template <typename A>
struct ProximalGradientDescentFormula {
  static constexpr int kVariables = 1, kCoefficients = 3;
  void operator()(const A* old, A g, A* fresh) const {
    fresh[0] = Proximal(old[0] - g * lr, lr, l1, l2);
  }
  A lr, l1, l2;
};

// Coefficients: lr, l1, l2. Slot: accum.
template <typename A>
struct ProximalAdagradFormula {
  static constexpr int kVariables = 2, kCoefficients = 3;
  void operator()(const A* old, A g, A* fresh) const {
    const A accum = old[1] + g * g, rate = lr / std::sqrt(accum);
    fresh[0] = Proximal(old[0] - g * rate, rate, l1, l2);
    fresh[1] = accum;
  }
  A lr, l1, l2;
};

// Coefficients: lr, l1, l2, global_step. Slots: the sums of gradients and of their squares.
template <typename A>
struct AdagradDAFormula {
  static constexpr int kVariables = 3, kCoefficients = 4;
  static AdagradDAFormula Make(const A* values, bool) {
    return {values[0], values[1] * values[3], values[2] * values[3] * values[0]};
  }
  void operator()(const A* old, A g, A* fresh) const {
    const A sum = old[1] + g, squares = old[2] + g * g;
    const A shrunk = l1 > A(0) ? Sign(sum) * std::max(std::abs(sum) - l1, A(0)) : sum;
    fresh[0] = -lr * shrunk / (l2 + std::sqrt(squares));
    fresh[1] = sum;
    fresh[2] = squares;
  }
  A lr, l1, l2;  // of all steps so far
};

// Coefficients: lr, alpha, sign_decay, beta. Slot: m.
template <typename A>
struct AddSignFormula {
  static constexpr int kVariables = 2, kCoefficients = 4;
  void operator()(const A* old, A g, A* fresh) const {
    const A m = old[1] * beta + g * (A(1) - beta);
    fresh[0] = old[0] - lr * (alpha + sign_decay * Sign(g) * Sign(m)) * g;
    fresh[1] = m;
  }
  A lr, alpha, sign_decay, beta;
};

// Coefficients: lr, logbase, sign_decay, beta. Slot: m.
template <typename A>
struct PowerSignFormula {
  static constexpr int kVariables = 2, kCoefficients = 4;
  static PowerSignFormula Make(const A* values, bool) {
    return {values[0], values[1] * values[2], values[3]};
  }
  void operator()(const A* old, A g, A* fresh) const {
    const A m = old[1] * beta + g * (A(1) - beta);
    fresh[0] = old[0] - lr * std::exp(exponent * Sign(g) * Sign(m)) * g;
    fresh[1] = m;
  }
  A lr, exponent, beta;
};

// Coefficients: beta1_power, lr, beta1, beta2, epsilon. Slots: m, v.
template <typename A>
struct AdaMaxFormula {
  static constexpr int kVariables = 3, kCoefficients = 5;
  static AdaMaxFormula Make(const A* values, bool) {
    return {values[1] / (A(1) - values[0]), A(1) - values[2], values[3], values[4]};
  }
  void operator()(const A* old, A g, A* fresh) const {
    const A m = old[1] + (g - old[1]) * one_minus_beta1, v = std::max(beta2 * old[2], std::abs(g));
    fresh[0] = old[0] - rate * (m / (v + epsilon));
    fresh[1] = m;
    fresh[2] = v;
  }
  A rate, one_minus_beta1, beta2, epsilon;
};

inline constexpr UpdateInputs kAdadelta = {3, nullptr, false, {3, 4, 5}, 6};
inline constexpr UpdateInputs kFtrl = {3, "multiply_linear_by_lr", false, {4, 5, 6, 7}, 3};
inline constexpr UpdateInputs kFtrlV2 = {3, "multiply_linear_by_lr", false, {4, 5, 6, 7, 8}, 3};
inline constexpr UpdateInputs kProximalGradientDescent = {1, nullptr, false, {1, 2, 3}, 4};
inline constexpr UpdateInputs kProximalAdagrad = {2, nullptr, false, {2, 3, 4}, 5};
inline constexpr UpdateInputs kAdagradDA = {3, nullptr, false, {4, 5, 6, 7}, 3};
inline constexpr UpdateInputs kSign = {2, nullptr, false, {2, 3, 4, 5}, 6};
inline constexpr UpdateInputs kAdaMax = {3, nullptr, false, {3, 4, 5, 6, 7}, 8};
// With rows: the indices are the input behind the gradient.
inline constexpr UpdateInputs kSparseFtrl = {3, "multiply_linear_by_lr", false, {5, 6, 7, 8}, 3};
inline constexpr UpdateInputs kSparseFtrlV2 = {
    3, "multiply_linear_by_lr", false, {5, 6, 7, 8, 9}, 3};
inline constexpr UpdateInputs kSparseAdagradDA = {3, nullptr, false, {5, 6, 7, 8}, 3};

// Calls fn.operator()<Formula>(what follows "ResourceApply" and "ResourceSparseApply", names of its
// variables, inputs of the update of whole variables, of that of rows; nullptr: there is none).
template <typename Fn>
void ForEachCpuUpdate(const Fn& fn) {
  fn.template operator()<AdadeltaFormula>("Adadelta", {"var", "accum", "accum_update"}, &kAdadelta,
                                          &kAdadelta);
  fn.template operator()<FtrlV1>("Ftrl", {"var", "accum", "linear"}, &kFtrl, &kSparseFtrl);
  fn.template operator()<FtrlV2>("FtrlV2", {"var", "accum", "linear"}, &kFtrlV2, &kSparseFtrlV2);
  fn.template operator()<ProximalGradientDescentFormula>(
      "ProximalGradientDescent", {"var"}, &kProximalGradientDescent, &kProximalGradientDescent);
  fn.template operator()<ProximalAdagradFormula>("ProximalAdagrad", {"var", "accum"},
                                                 &kProximalAdagrad, &kProximalAdagrad);
  fn.template operator()<AdagradDAFormula>(
      "AdagradDA", {"var", "gradient_accumulator", "gradient_squared_accumulator"}, &kAdagradDA,
      &kSparseAdagradDA);
  fn.template operator()<AddSignFormula>("AddSign", {"var", "m"}, &kSign, nullptr);
  fn.template operator()<PowerSignFormula>("PowerSign", {"var", "m"}, &kSign, nullptr);
  fn.template operator()<AdaMaxFormula>("AdaMax", {"var", "m", "v"}, &kAdaMax, nullptr);
}

}  // namespace monograph::ops::training
