// Ops that choose between two tensors: SelectV2 (tf.where with three arguments, broadcasting) and
// the older Select.
#pragma once

#include "graph/scope.h"

namespace monograph {

// Element by element, t where the condition holds and e where not; all three broadcast.
Output Select(const Scope& scope, const Output& condition, const Output& t, const Output& e);
// TensorFlow 1's Select: t and e have one shape; the condition has it too, or is a scalar, or a
// vector that picks whole rows.
Output SelectV1(const Scope& scope, const Output& condition, const Output& t, const Output& e);

}  // namespace monograph
