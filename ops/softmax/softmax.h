// Softmax over the last dimension.
#pragma once

#include "graph/scope.h"

namespace monograph {

Output Softmax(const Scope& scope, Output logits);     // exp(x) / sum exp(x)
Output LogSoftmax(const Scope& scope, Output logits);  // x - log sum exp(x)

}  // namespace monograph
