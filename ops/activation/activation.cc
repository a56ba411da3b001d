// Activation functions, their gradients and the gradients of those. Relu, Relu6, Elu and Selu
// compute their gradient from the output, so that the input's memory can be freed before the
// backward pass. LeakyRelu, Softplus and Softsign need the input.
#include "ops/activation/activation.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"

namespace monograph {

Output Relu(const Scope& scope, Output features) {
  return OpBuilder(scope, "Relu").Input(features).BuildOutput();
}
Output Relu6(const Scope& scope, Output features) {
  return OpBuilder(scope, "Relu6").Input(features).BuildOutput();
}
Output LeakyRelu(const Scope& scope, Output features, float alpha) {
  return OpBuilder(scope, "LeakyRelu")
      .Input(features)
      .Attr("alpha", AttrValue(alpha))
      .BuildOutput();
}
Output Elu(const Scope& scope, Output features) {
  return OpBuilder(scope, "Elu").Input(features).BuildOutput();
}
Output Softplus(const Scope& scope, Output features) {
  return OpBuilder(scope, "Softplus").Input(features).BuildOutput();
}
Output Gelu(const Scope& scope, Output features) {
  return OpBuilder(scope, "_Gelu").Input(features).BuildOutput();
}
Output Selu(const Scope& scope, Output features) {
  return OpBuilder(scope, "Selu").Input(features).BuildOutput();
}
Output Softsign(const Scope& scope, Output features) {
  return OpBuilder(scope, "Softsign").Input(features).BuildOutput();
}
Output ReluGrad(const Scope& scope, Output gradients, Output features) {
  return OpBuilder(scope, "ReluGrad").Input(gradients).Input(features).BuildOutput();
}
Output Relu6Grad(const Scope& scope, Output gradients, Output features) {
  return OpBuilder(scope, "Relu6Grad").Input(gradients).Input(features).BuildOutput();
}

namespace ops::activation {
namespace {

Status ReluGradient(GradientContext& c) {
  c.set_grad(0, ReluGrad(c.scope(), c.grad(0), c.output(0)));
  return Status();
}

// ReLU is piecewise linear: the gradient of its gradient passes the same elements, and no gradient
// flows to the features.
Status ReluGradGradient(GradientContext& c) {
  c.set_grad(0, ReluGrad(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

Status Relu6GradGradient(GradientContext& c) {
  c.set_grad(0, Relu6Grad(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

Output Binary(const Scope& s, const char* op, Output a, Output b) {
  return OpBuilder(s, op).Input(a).Input(b).BuildOutput();
}

Status LeakyReluGradGradient(GradientContext& c) {
  c.set_grad(0, OpBuilder(c.scope(), "LeakyReluGrad")
                    .Input(c.grad(0))
                    .Input(c.input(1))
                    .Attr("alpha", AttrValue(c.attrs().Get<float>("alpha")))
                    .BuildOutput());
  return Status();
}

// g * (y < 0 ? y + a : b), of Elu and of Selu.
Status OutputGradGradient(GradientContext& c, const char* op) {
  const Scope& s = c.scope();
  const Output g = c.input(0), y = c.input(1);
  c.set_grad(0, Binary(s, op, c.grad(0), y));
  const Output zeros = OpBuilder(s, "ZerosLike").Input(y).BuildOutput();
  const Output negative = Binary(s, "Less", y, zeros);
  c.set_grad(1, OpBuilder(s, "SelectV2")
                    .Input(negative)
                    .Input(Binary(s, "Mul", c.grad(0), g))
                    .Input(zeros)
                    .BuildOutput());
  return Status();
}
Status EluGradGradient(GradientContext& c) { return OutputGradGradient(c, "EluGrad"); }
Status SeluGradGradient(GradientContext& c) { return OutputGradGradient(c, "SeluGrad"); }

// g / (|x| + 1)^2, whose derivative is -2 g sign(x) / (|x| + 1)^3.
Status SoftsignGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output g = c.input(0), x = c.input(1);
  c.set_grad(0, Binary(s, "SoftsignGrad", c.grad(0), x));
  const auto unary = [&](const char* op, Output in) {
    return OpBuilder(s, op).Input(in).BuildOutput();
  };
  const Output ones = unary("OnesLike", x);
  const Output size = Binary(s, "AddV2", unary("Abs", x), ones);
  const Output sign = Binary(s, "RealDiv", unary("Sign", x), size);
  const Output slope = Binary(s, "Mul", Binary(s, "SoftsignGrad", g, x), sign);
  const Output twice = Binary(s, "AddV2", slope, slope);
  c.set_grad(1, Binary(s, "Mul", c.grad(0), unary("Neg", twice)));
  return Status();
}

// g * sigmoid(x), whose derivative is g * sigmoid(x) * sigmoid(-x).
Status SoftplusGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output g = c.input(0), x = c.input(1);
  c.set_grad(0, Binary(s, "SoftplusGrad", c.grad(0), x));
  const Output minus = OpBuilder(s, "Neg").Input(x).BuildOutput();
  const Output slope = Binary(s, "SoftplusGrad", Binary(s, "SoftplusGrad", g, x), minus);
  c.set_grad(1, Binary(s, "Mul", c.grad(0), slope));
  return Status();
}

Status Relu6Gradient(GradientContext& c) {
  c.set_grad(0, Relu6Grad(c.scope(), c.grad(0), c.output(0)));
  return Status();
}

Status LeakyReluGradient(GradientContext& c) {
  c.set_grad(0, OpBuilder(c.scope(), "LeakyReluGrad")
                    .Input(c.grad(0))
                    .Input(c.input(0))
                    .Attr("alpha", AttrValue(c.attrs().Get<float>("alpha")))
                    .BuildOutput());
  return Status();
}

Status EluGradient(GradientContext& c) {
  c.set_grad(0, OpBuilder(c.scope(), "EluGrad").Input(c.grad(0)).Input(c.output(0)).BuildOutput());
  return Status();
}

Status SeluGradient(GradientContext& c) {
  c.set_grad(0, Binary(c.scope(), "SeluGrad", c.grad(0), c.output(0)));
  return Status();
}

Status GeluGradient(GradientContext& c) {
  c.set_grad(0, Binary(c.scope(), "_GeluGrad", c.grad(0), c.input(0)));
  return Status();
}

Status SoftsignGradient(GradientContext& c) {
  c.set_grad(0, Binary(c.scope(), "SoftsignGrad", c.grad(0), c.input(0)));
  return Status();
}

Status SoftplusGradient(GradientContext& c) {
  c.set_grad(0,
             OpBuilder(c.scope(), "SoftplusGrad").Input(c.grad(0)).Input(c.input(0)).BuildOutput());
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  const char* numbers = "T: {float, double, int32, int64, half, bfloat16}";
  const char* floats = "T: {half, bfloat16, float, double}";
  registry->Add(OpDef("Relu")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(numbers)
                    .Shape(UnchangedShape)
                    .Gradient(ReluGradient));
  registry->Add(OpDef("Relu6")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(numbers)
                    .Shape(UnchangedShape)
                    .Gradient(Relu6Gradient));
  registry->Add(OpDef("LeakyRelu")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr("alpha: float = 0.2")
                    .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
                    .Shape(UnchangedShape)
                    .Gradient(LeakyReluGradient));
  registry->Add(OpDef("Elu")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(floats)
                    .Shape(UnchangedShape)
                    .Gradient(EluGradient));
  registry->Add(OpDef("Softplus")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(floats)
                    .Shape(UnchangedShape)
                    .Gradient(SoftplusGradient));
  registry->Add(OpDef("ReluGrad")
                    .Input("gradients: T")
                    .Input("features: T")
                    .Output("backprops: T")
                    .Attr(numbers)
                    .Shape(MergeAllShape)
                    .Gradient(ReluGradGradient));
  registry->Add(OpDef("Relu6Grad")
                    .Input("gradients: T")
                    .Input("features: T")
                    .Output("backprops: T")
                    .Attr(numbers)
                    .Shape(MergeAllShape)
                    .Gradient(Relu6GradGradient));
  registry->Add(OpDef("LeakyReluGrad")
                    .Input("gradients: T")
                    .Input("features: T")
                    .Output("backprops: T")
                    .Attr("alpha: float = 0.2")
                    .Attr("T: {half, bfloat16, float, double} = DT_FLOAT")
                    .Shape(MergeAllShape)
                    .Gradient(LeakyReluGradGradient));
  registry->Add(OpDef("EluGrad")
                    .Input("gradients: T")
                    .Input("outputs: T")
                    .Output("backprops: T")
                    .Attr(floats)
                    .Shape(MergeAllShape)
                    .Gradient(EluGradGradient));
  registry->Add(OpDef("Selu")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(floats)
                    .Shape(UnchangedShape)
                    .Gradient(SeluGradient));
  registry->Add(OpDef("Softsign")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(floats)
                    .Shape(UnchangedShape)
                    .Gradient(SoftsignGradient));
  registry->Add(OpDef("_Gelu")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(floats)
                    .Shape(UnchangedShape)
                    .Gradient(GeluGradient));
  registry->Add(OpDef("_GeluGrad")
                    .Input("gradients: T")
                    .Input("features: T")
                    .Output("backprops: T")
                    .Attr(floats)
                    .Shape(MergeAllShape));
  registry->Add(OpDef("SeluGrad")
                    .Input("gradients: T")
                    .Input("outputs: T")
                    .Output("backprops: T")
                    .Attr(floats)
                    .Shape(MergeAllShape)
                    .Gradient(SeluGradGradient));
  registry->Add(OpDef("SoftsignGrad")
                    .Input("gradients: T")
                    .Input("features: T")
                    .Output("backprops: T")
                    .Attr(floats)
                    .Shape(MergeAllShape)
                    .Gradient(SoftsignGradGradient));
  registry->Add(OpDef("SoftplusGrad")
                    .Input("gradients: T")
                    .Input("features: T")
                    .Output("backprops: T")
                    .Attr(floats)
                    .Shape(MergeAllShape)
                    .Gradient(SoftplusGradGradient));
}

}  // namespace ops::activation
}  // namespace monograph
