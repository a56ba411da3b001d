#include "ops/select/select.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/shape/shape.h"

namespace monograph {

Output Select(const Scope& scope, const Output& condition, const Output& t, const Output& e) {
  return OpBuilder(scope, "SelectV2").Input(condition).Input(t).Input(e).BuildOutput();
}

Output SelectV1(const Scope& scope, const Output& condition, const Output& t, const Output& e) {
  return OpBuilder(scope, "Select").Input(condition).Input(t).Input(e).BuildOutput();
}

namespace ops::select {
namespace {

Status SelectV1Shape(ShapeContext& c) {
  auto data = PartialShape::Merge(c.input(1), c.input(2));
  if (!data.ok()) {
    return InvalidArgument("t and e must have one shape, not " + c.input(1).ToString() + " and " +
                           c.input(2).ToString());
  }
  c.set_output(0, *data);
  const PartialShape& condition = c.input(0);
  if (!condition.known_rank() || condition.rank() == 0) return Status();
  if (condition.rank() == 1 && data->known_rank() && data->rank() != 1) {
    if (data->rank() > 0 &&
        (condition.dim(0) < 0 || data->dim(0) < 0 || condition.dim(0) == data->dim(0))) {
      return Status();
    }
    return InvalidArgument("a condition of shape " + condition.ToString() +
                           " cannot pick rows of " + data->ToString());
  }
  if (condition.rank() == 1 && !data->known_rank()) return Status();
  MG_ASSIGN_OR_RETURN(const PartialShape merged, PartialShape::Merge(*data, condition));
  c.set_output(0, merged);
  return Status();
}

Status SelectV2Shape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape data, BroadcastShapes(c.input(1), c.input(2)));
  MG_ASSIGN_OR_RETURN(const PartialShape output, BroadcastShapes(c.input(0), data));
  c.set_output(0, output);
  return Status();
}

Status SelectV1Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output zeros = ZerosLike(s, c.grad(0));
  c.set_grad(1, SelectV1(s, c.input(0), c.grad(0), zeros));
  c.set_grad(2, SelectV1(s, c.input(0), zeros, c.grad(0)));
  return Status();
}

Status SelectV2Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output zero = ScalarConst(s, 0, c.grad(0).dtype());
  c.set_grad(1, SumToShapeOf(s, Select(s, c.input(0), c.grad(0), zero), c.input(1), c.output(0)));
  c.set_grad(2, SumToShapeOf(s, Select(s, c.input(0), zero, c.grad(0)), c.input(2), c.output(0)));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Select")
                    .Input("condition: bool")
                    .Input("t: T")
                    .Input("e: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Shape(SelectV1Shape)
                    .Gradient(SelectV1Gradient));
  registry->Add(OpDef("SelectV2")
                    .Input("condition: bool")
                    .Input("t: T")
                    .Input("e: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Shape(SelectV2Shape)
                    .Gradient(SelectV2Gradient));
}

}  // namespace ops::select
}  // namespace monograph
