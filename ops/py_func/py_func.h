// PyFunc: a node that calls a function of the program, by a token that the program gave it. The
// nodes are tf.py_func's (PyFunc, PyFuncStateless) and tf.py_function's (EagerPyFunc).
//
// A function lives in one process, and so such a node runs there: without a requested job it is
// placed on the client; elsewhere only a task works that the same process hosts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "graph/scope.h"

namespace monograph {

Outputs PyFunc(const Scope& scope, const Outputs& inputs, const std::string& token,
               const std::vector<DType>& types);

struct PyFuncCall {
  std::string token;
  bool eager = false;  // EagerPyFunc
  std::vector<Tensor> inputs;
  std::vector<DType> types;  // of the outputs
};

// Calls the function of the token. Returns a tensor for each of `types`. Any thread, several at
// once; it may take long.
using PyFuncHandler = std::function<Result<std::vector<Tensor>>(PyFuncCall call)>;
// All of this process's calls go to `handler`, the one that was set last.
void SetPyFuncHandler(PyFuncHandler handler);

}  // namespace monograph
