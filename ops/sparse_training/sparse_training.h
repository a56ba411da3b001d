// One step of an optimizer on some rows of a variable: grad[i] belongs to row indices[i] (a vector
// of int32 or int64) of the variable and of its slots, and other rows stay as they are.
//
// An index that repeats is updated once for each of its rows, in their order; an optimizer that
// wants the rows added up first calls SumRepeatedRows. An index out of range fails the step with
// InvalidArgument that names it, and nothing is updated. Formulas: ops/training/training.h. For
// GradientDescent see ResourceScatterSub.
#pragma once

#include "graph/gradients.h"
#include "graph/scope.h"

namespace monograph {

Operation ResourceSparseApplyMomentum(const Scope& scope, Output var, Output accum, Output lr,
                                      const Gradient& rows, Output momentum,
                                      bool use_nesterov = false);
Operation ResourceSparseApplyAdagrad(const Scope& scope, Output var, Output accum, Output lr,
                                     const Gradient& rows, bool update_slots = true);
Operation ResourceSparseApplyAdagradV2(const Scope& scope, Output var, Output accum, Output lr,
                                       Output epsilon, const Gradient& rows,
                                       bool update_slots = true);
Operation ResourceSparseApplyRMSProp(const Scope& scope, Output var, Output ms, Output mom,
                                     Output lr, Output rho, Output momentum, Output epsilon,
                                     const Gradient& rows);
Operation ResourceSparseApplyCenteredRMSProp(const Scope& scope, Output var, Output mg, Output ms,
                                             Output mom, Output lr, Output rho, Output momentum,
                                             Output epsilon, const Gradient& rows);

// The same gradient with each index once, in order of first appearance; its rows are added in their
// order.
Gradient SumRepeatedRows(const Scope& scope, const Gradient& rows);

}  // namespace monograph
