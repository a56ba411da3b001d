// StringJoin: strings put together. TensorFlow's op of this name.
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// Element by element, with `separator` in between. The inputs have one shape, or are scalars, which
// stand for all elements.
Output StringJoin(const Scope& scope, const Outputs& inputs, const std::string& separator = "");

}  // namespace monograph
