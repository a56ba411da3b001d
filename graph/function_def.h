// Functions as TensorFlow's FunctionDef.
#pragma once

#include <string>

#include "graph/function.h"

namespace monograph {

// A serialised FunctionDef. Functions that the body names keep their names.
std::string SerializeFunction(const Function& function);

}  // namespace monograph
