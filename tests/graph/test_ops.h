// A small registry for tests of the graph layer, which cannot see ops/.
#pragma once

#include <memory>

#include "graph/op_def.h"
#include "graph/scope.h"
#include "graph/shape_inference.h"

namespace monograph::testing {

void AddTestOps(OpRegistry* registry);
const OpRegistry& TestRegistry();

Output Placeholder(const Scope& scope, DType dtype, const PartialShape& shape);
Output Const(const Scope& scope, Tensor value);
Output Binary(const Scope& scope, const char* op, const Output& a, const Output& b);
Output Unary(const Scope& scope, const char* op, const Output& a);

}  // namespace monograph::testing
