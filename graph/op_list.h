// Definitions of ops as TensorFlow writes them: its message OpList.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/op_def.h"

namespace monograph {

struct OpList {
  std::vector<OpDef> ops;                 // without shape functions and gradients
  std::vector<std::string> by_reference;  // names of those that take or give references
  std::vector<std::string> deprecated;    // names of those that newer GraphDefs cannot have
};

// Reads a serialised OpList, but for ops whose names begin with '_' and those that have types that
// we do not know. InvalidArgument if the bytes are none.
Result<OpList> ParseOpList(std::string_view bytes);

}  // namespace monograph
