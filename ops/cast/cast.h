// Cast: another element type.
#pragma once

#include "graph/scope.h"

namespace monograph {

// Floats to integers truncate towards zero; to bool: not zero; to a smaller float: nearest, ties to
// even. Returns x itself if it has that type.
Output Cast(const Scope& scope, const Output& x, DType dtype);

}  // namespace monograph
