// Functions with attributes. TensorFlow's library may hold a function for any type or number: its
// signature declares attributes ("T: type"), its arguments are of type "T", and in its body "$T"
// stands for the value. A call gives the values, in its attributes or beside the function's name.
#pragma once

#include "base/status.h"

namespace monograph {

namespace pb {  // graph/graph.proto
class FunctionDefLibrary;
class GraphDef;
}  // namespace pb
using pb::GraphDef;

// Whether one of the library's functions has attributes.
bool HasFunctionAttributes(const pb::FunctionDefLibrary& library);

// Puts a plain function into the library for each function with attributes and each set of values
// that calls give them ("f__T_float"), makes these calls of that, and takes the functions with
// attributes out. InvalidArgument names the call whose values are missing or wrong.
Status InstantiateFunctions(GraphDef* def);

}  // namespace monograph
