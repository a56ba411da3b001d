// One step of an optimizer: each op updates its variables in place, in one pass, under their locks.
//
// Variables and slots are handles; they must be initialised and have the gradient's shape.
// Coefficients are scalars of the gradient's type.
#pragma once

#include "graph/scope.h"

namespace monograph {

// var -= alpha * delta
Operation ResourceApplyGradientDescent(const Scope& scope, Output var, Output alpha, Output delta);

//   accum = momentum * accum + grad
//   var -= lr * accum
//   use_nesterov:  var -= lr * (grad + momentum * accum)
Operation ResourceApplyMomentum(const Scope& scope, Output var, Output accum, Output lr,
                                Output grad, Output momentum, bool use_nesterov = false);

//   lr_t = lr * sqrt(1 - beta2_power) / (1 - beta1_power)
//   m += (1 - beta1) * (grad - m)
//   v += (1 - beta2) * (grad^2 - v)
//   var -= lr_t * m / (sqrt(v) + epsilon)
//   use_nesterov:  beta1 * m + (1 - beta1) * grad in place of m in the update of var
Operation ResourceApplyAdam(const Scope& scope, Output var, Output m, Output v, Output beta1_power,
                            Output beta2_power, Output lr, Output beta1, Output beta2,
                            Output epsilon, Output grad, bool use_nesterov = false);

// accum += grad^2 (unless update_slots is false);  var -= lr * grad / sqrt(accum)
Operation ResourceApplyAdagrad(const Scope& scope, Output var, Output accum, Output lr, Output grad,
                               bool update_slots = true);
// ... / (sqrt(accum) + epsilon)
Operation ResourceApplyAdagradV2(const Scope& scope, Output var, Output accum, Output lr,
                                 Output epsilon, Output grad, bool update_slots = true);

//   ms += (1 - rho) * (grad^2 - ms)
//   mom = momentum * mom + lr * grad / sqrt(ms + epsilon)
//   var -= mom
Operation ResourceApplyRMSProp(const Scope& scope, Output var, Output ms, Output mom, Output lr,
                               Output rho, Output momentum, Output epsilon, Output grad);

// RMSProp divided by the root of the variance instead of the mean square:
//   mg += (1 - rho) * (grad - mg)
//   sqrt(ms - mg^2 + epsilon) in place of sqrt(ms + epsilon)
Operation ResourceApplyCenteredRMSProp(const Scope& scope, Output var, Output mg, Output ms,
                                       Output mom, Output lr, Output rho, Output momentum,
                                       Output epsilon, Output grad);

}  // namespace monograph
