#include "ops/softmax/softmax.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"

namespace monograph {

Output Softmax(const Scope& scope, Output logits) {
  return OpBuilder(scope, "Softmax").Input(logits).BuildOutput();
}
Output LogSoftmax(const Scope& scope, Output logits) {
  return OpBuilder(scope, "LogSoftmax").Input(logits).BuildOutput();
}

namespace ops::softmax {
namespace {

Status SoftmaxShape(ShapeContext& c) {
  if (c.input(0).known_rank() && c.input(0).rank() < 1)
    return InvalidArgument("the logits need at least one dimension, got a scalar");
  c.set_output(0, c.input(0));
  return Status();
}

Output SumLast(const Scope& s, Output x) {
  const Output last = OpBuilder(s, "Const")
                          .Attr("value", AttrValue(Tensor::Vector<int32_t>({-1})))
                          .Attr("dtype", AttrValue(DT_INT32))
                          .BuildOutput();
  return OpBuilder(s, "Sum").Input(x).Input(last).Attr("keep_dims", AttrValue(true)).BuildOutput();
}

Output Binary(const Scope& s, const char* op, Output a, Output b) {
  return OpBuilder(s, op).Input(a).Input(b).BuildOutput();
}

// (g - sum(g * y)) * y
Status SoftmaxGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.output(0), g = c.grad(0);
  c.set_grad(0, Binary(s, "Mul", Binary(s, "Sub", g, SumLast(s, Binary(s, "Mul", g, y))), y));
  return Status();
}

// g - sum(g) * exp(y)
Status LogSoftmaxGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output g = c.grad(0);
  const Output softmax = OpBuilder(s, "Exp").Input(c.output(0)).BuildOutput();
  c.set_grad(0, Binary(s, "Sub", g, Binary(s, "Mul", SumLast(s, g), softmax)));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Softmax")
                    .Input("logits: T")
                    .Output("softmax: T")
                    .Attr("T: {half, bfloat16, float, double}")
                    .Shape(SoftmaxShape)
                    .Gradient(SoftmaxGradient));
  registry->Add(OpDef("LogSoftmax")
                    .Input("logits: T")
                    .Output("logsoftmax: T")
                    .Attr("T: {half, bfloat16, float, double}")
                    .Shape(SoftmaxShape)
                    .Gradient(LogSoftmaxGradient));
}

}  // namespace ops::softmax
}  // namespace monograph
