// Ops that order, check or pass on: NoOp, Group, Assert, Identity, IdentityN, StopGradient,
// PreventGradient, CheckNumerics, Print, PrintV2.
#pragma once

#include <span>
#include <string_view>

#include "graph/scope.h"

namespace monograph {

// Does nothing: a point for control edges to meet.
Operation NoOp(const Scope& scope);
// A NoOp that runs after all of `operations` (tf.group).
Operation Group(const Scope& scope, std::span<const Operation> operations);
inline Operation Group(const Scope& scope, std::initializer_list<Operation> operations) {
  return Group(scope, std::span<const Operation>(operations.begin(), operations.size()));
}
// Fails the step with InvalidArgument, showing `summarize` elements of each of `data`, unless the
// bool scalar `condition` holds.
Operation Assert(const Scope& scope, const Output& condition, const Outputs& data,
                 int summarize = 3);

Output Identity(const Scope& scope, const Output& input);
Outputs IdentityN(const Scope& scope, const Outputs& inputs);
// The input; gradients take it for a constant. The node is an Identity that AddGradients knows by
// its op, StopGradient.
Output StopGradient(const Scope& scope, const Output& input);
// The input; asking for a gradient through it is an error that shows `message`.
Output PreventGradient(const Scope& scope, const Output& input, std::string_view message);
// The input; fails the step with InvalidArgument "<message> : Tensor had NaN values" (or Inf) if
// there are any.
Output CheckNumerics(const Scope& scope, const Output& tensor, std::string_view message);

}  // namespace monograph
