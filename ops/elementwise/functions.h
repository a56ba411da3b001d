// Definitions that most elementwise ops share.
#pragma once

#include "graph/gradients.h"
#include "graph/op_def.h"

namespace monograph::ops::elementwise {

// z = name(x, y), broadcast, and y = name(x), of one of `types`. Without a gradient none flows.
OpDef Binary(const char* name, const char* types, GradientFn gradient);
OpDef Unary(const char* name, const char* types, GradientFn gradient);

// Of trigonometric and special functions, bits, and ops of three operands.
void DefineFunctions(OpRegistry* registry);

}  // namespace monograph::ops::elementwise
