// Activation functions, element by element.
#pragma once

#include "graph/scope.h"

namespace monograph {

Output Relu(const Scope& scope, Output features);                           // max(x, 0)
Output Relu6(const Scope& scope, Output features);                          // min(max(x, 0), 6)
Output LeakyRelu(const Scope& scope, Output features, float alpha = 0.2f);  // x > 0 ? x : alpha x
Output Elu(const Scope& scope, Output features);       // x > 0 ? x : exp(x) - 1
Output Softplus(const Scope& scope, Output features);  // log(exp(x) + 1)
Output Selu(const Scope& scope, Output features);      // 1.05 * (x > 0 ? x : 1.67 * (exp(x) - 1))
Output Softsign(const Scope& scope, Output features);  // x / (|x| + 1)
// x / 2 (1 + erf(x / sqrt 2)), as one op, of any type of float; its gradient is one, too, and has
// none itself.
Output Gelu(const Scope& scope, Output features);

// Their gradients, TensorFlow's way: features may be the function's input or, for Relu and Relu6,
// its output.
Output ReluGrad(const Scope& scope, Output gradients, Output features);
Output Relu6Grad(const Scope& scope, Output gradients, Output features);

}  // namespace monograph
