// Optional values: variants that hold some tensors, or nothing. TensorFlow's gradients of If pass
// what only one branch has computed in them.
#pragma once

#include <vector>

#include "graph/scope.h"

namespace monograph {

Output OptionalFromValue(const Scope& scope, const Outputs& components);
Output OptionalNone(const Scope& scope);
Output OptionalHasValue(const Scope& scope, const Output& optional);  // bool scalar
// InvalidArgument in a step where there are none, or others than of these types and shapes.
Outputs OptionalGetValue(const Scope& scope, const Output& optional,
                         const std::vector<DType>& types, const std::vector<PartialShape>& shapes);

}  // namespace monograph
