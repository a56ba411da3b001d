// The definition: inputs, outputs, types, shape, and the gradient as nodes.
#include "swish.h"

namespace custom_op {

using namespace monograph;  // NOLINT

namespace {

// d/dx = s + x s (1 - s) with s = sigmoid(x)
Status SwishGradient(GradientContext& c) {
  const Scope& scope = c.scope();
  const Output s = Sigmoid(scope, c.input(0));
  const Output slope = Add(scope, s, Mul(scope, c.output(0), Sub(scope, Const(scope, 1.0f), s)));
  c.set_grad(0, Mul(scope, c.grad(0), slope));
  return Status();
}

}  // namespace

Output Swish(const Scope& scope, const Output& x) {
  return OpBuilder(scope, "Swish").Input(x).BuildOutput();
}

void DefineSwish(OpRegistry* ops) {
  ops->Add(OpDef("Swish")
               .Input("x: float")
               .Output("y: float")
               .Shape(UnchangedShape)
               .Gradient(SwishGradient));
}

}  // namespace custom_op
