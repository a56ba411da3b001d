// Functions, shape functions, gradients and definitions. The cross entropies compute their gradient
// (the output `backprop`) together with the loss, since both need the same exponentials; what is
// left for the backward pass is a product with the gradient of the loss. A gradient through
// `backprop` itself is refused.
#include "ops/loss/loss.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/select/select.h"

namespace monograph {

Output SparseSoftmaxCrossEntropyWithLogits(const Scope& scope, Output logits, Output labels) {
  return OpBuilder(scope, "SparseSoftmaxCrossEntropyWithLogits")
      .Input(logits)
      .Input(labels)
      .BuildOutput();
}
Output SoftmaxCrossEntropyWithLogits(const Scope& scope, Output logits, Output labels) {
  return OpBuilder(scope, "SoftmaxCrossEntropyWithLogits")
      .Input(logits)
      .Input(labels)
      .BuildOutput();
}
Output SigmoidCrossEntropyWithLogits(const Scope& scope, Output logits, Output labels) {
  if (!logits.valid() || !labels.valid()) return {};
  if (!PartialShape::Merge(logits.shape(), labels.shape()).ok()) {
    scope.Fail(InvalidArgument("SigmoidCrossEntropyWithLogits: logits " +
                               logits.shape().ToString() + " and labels " +
                               labels.shape().ToString() + " must have the same shape"));
    return {};
  }
  //   max(x, 0) - x * labels + log(1 + exp(-|x|))
  // with selections in place of max and |x|, so that the gradient at 0 is sigmoid(0) - labels, too.
  const Scope s = scope.HelperScope("logistic_loss");
  const Output zero = ScalarConst(s.WithOpName("zero"), 0, logits.dtype());
  const Output positive = GreaterEqual(s, logits, zero);
  const Output above = Select(s, positive, logits, zero);
  const Output minus_abs = Select(s, positive, Neg(s, logits), logits);
  const Output linear = Sub(s, above, Mul(s, logits, labels));
  return Add(scope, linear, Log1p(s, Exp(s, minus_abs)));
}
Output L2Loss(const Scope& scope, Output t) {
  return OpBuilder(scope, "L2Loss").Input(t).BuildOutput();
}
Output InTopK(const Scope& scope, Output predictions, Output targets, Output k) {
  return OpBuilder(scope, "InTopKV2").Input(predictions).Input(targets).Input(k).BuildOutput();
}

namespace ops::loss {
namespace {

Status SparseShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(PartialShape features, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape labels, c.WithRank(1, 1));
  MG_ASSIGN_OR_RETURN(const int64_t batch, MergeDim(features.dim(0), labels.dim(0),
                                                    "rows of the logits and number of labels"));
  features.set_dim(0, batch);
  c.set_output(0, PartialShape{batch});
  c.set_output(1, features);
  return Status();
}

Status DenseShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape both, BroadcastShapes(c.input(0), c.input(1)));
  if (both.known_rank() && both.rank() != 2) {
    return InvalidArgument("logits and labels must be matrices, got " + c.input(0).ToString() +
                           " and " + c.input(1).ToString());
  }
  c.set_output(0, both.known_rank() ? PartialShape{both.dim(0)} : PartialShape{-1});
  c.set_output(1, both.known_rank() ? both : PartialShape{-1, -1});
  return Status();
}

Status InTopKShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape predictions, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape targets, c.WithRank(1, 1));
  if (c.num_inputs() > 2) MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  MG_ASSIGN_OR_RETURN(const int64_t batch,
                      MergeDim(predictions.dim(0), targets.dim(0),
                               "rows of the predictions and number of targets"));
  c.set_output(0, PartialShape{batch});
  return Status();
}

// g [n] as a column [n, 1] times backprop [n, classes].
Output Scale(const Scope& s, Output g, Output backprop) {
  const Output axis = OpBuilder(s, "Const")
                          .Attr("value", AttrValue(Tensor::Scalar<int32_t>(-1)))
                          .Attr("dtype", AttrValue(DT_INT32))
                          .BuildOutput();
  const Output column = OpBuilder(s, "ExpandDims").Input(g).Input(axis).BuildOutput();
  return OpBuilder(s, "Mul").Input(column).Input(backprop).BuildOutput();
}

Status RefuseSecondOrder(const GradientContext& c) {
  if (!c.gradient(1).valid()) return Status();
  return Unimplemented(
      "node '" + std::string(c.op().name()) +
      "': a gradient through the backprop output of a cross entropy is not supported");
}

Status SparseGradient(GradientContext& c) {
  MG_RETURN_IF_ERROR(RefuseSecondOrder(c));
  c.set_grad(0, Scale(c.scope(), c.grad(0), c.output(1)));
  return Status();
}

Status DenseGradient(GradientContext& c) {
  MG_RETURN_IF_ERROR(RefuseSecondOrder(c));
  const PartialShape &features = c.input(0).shape(), &labels = c.input(1).shape();
  if (features.fully_known() && labels.fully_known() && !(features == labels)) {
    return Unimplemented(
        "node '" + std::string(c.op().name()) +
        "': the gradient of a cross entropy whose inputs broadcast is not supported");
  }
  const Scope& s = c.scope();
  c.set_grad(0, Scale(s, c.grad(0), c.output(1)));
  const Output logs = OpBuilder(s, "LogSoftmax").Input(c.input(0)).BuildOutput();
  const Output negative = OpBuilder(s, "Neg").Input(logs).BuildOutput();
  c.set_grad(1, Scale(s, c.grad(0), negative));
  return Status();
}

Status L2Gradient(GradientContext& c) {
  c.set_grad(0, OpBuilder(c.scope(), "Mul").Input(c.input(0)).Input(c.grad(0)).BuildOutput());
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("SparseSoftmaxCrossEntropyWithLogits")
                    .Input("features: T")
                    .Input("labels: Tlabels")
                    .Output("loss: T")
                    .Output("backprop: T")
                    .Attr("T: {half, bfloat16, float, double}")
                    .Attr("Tlabels: {int32, int64} = DT_INT64")
                    .Shape(SparseShape)
                    .Gradient(SparseGradient));
  registry->Add(OpDef("SoftmaxCrossEntropyWithLogits")
                    .Input("features: T")
                    .Input("labels: T")
                    .Output("loss: T")
                    .Output("backprop: T")
                    .Attr("T: {half, bfloat16, float, double}")
                    .Shape(DenseShape)
                    .Gradient(DenseGradient));
  registry->Add(OpDef("L2Loss")
                    .Input("t: T")
                    .Output("output: T")
                    .Attr("T: {half, bfloat16, float, double}")
                    .Shape(ScalarShape)
                    .Gradient(L2Gradient));
  registry->Add(OpDef("InTopK")
                    .Input("predictions: float")
                    .Input("targets: T")
                    .Output("precision: bool")
                    .Attr("k: int")
                    .Attr("T: {int32, int64} = DT_INT32")
                    .Shape(InTopKShape)
                    .NoGradient());
  registry->Add(OpDef("InTopKV2")
                    .Input("predictions: float")
                    .Input("targets: T")
                    .Input("k: T")
                    .Output("precision: bool")
                    .Attr("T: {int32, int64} = DT_INT32")
                    .Shape(InTopKShape)
                    .NoGradient());
}

}  // namespace ops::loss
}  // namespace monograph
