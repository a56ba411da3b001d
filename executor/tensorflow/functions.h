// Functions of a graph's library, as TensorFlow's library gets them.
#pragma once

#include <string>

#include "executor/tensorflow/library.h"
#include "graph/function.h"

namespace monograph::tensorflow {

// Gives the library a function and all that it names, once each. Returns its name there: two
// functions of one name, of different graphs, have different ones.
Result<std::string> AddFunction(const Library& library, const FunctionLibrary& functions,
                                const std::string& name);

}  // namespace monograph::tensorflow
