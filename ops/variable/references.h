// The ops of variables by reference: VariableV2, Assign, ScatterAdd, ... What they do is done by
// handles (graph/references.h).
#pragma once

#include "graph/op_def.h"

namespace monograph::ops::variable {

void DefineReferences(OpRegistry* registry);

}  // namespace monograph::ops::variable
