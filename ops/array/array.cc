// Functions, shape functions, gradients and definitions, op by op. Shapes follow from constant
// operands where these are known.
#include "ops/array/array.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/array/bitcast.h"
#include "ops/dims.h"
#include "ops/types.h"

namespace monograph {

Output LinSpace(const Scope& scope, const Output& start, const Output& stop, const Output& num) {
  return OpBuilder(scope, "LinSpace").Input(start).Input(stop).Input(num).BuildOutput();
}
Output Bitcast(const Scope& scope, const Output& input, DType type) {
  return OpBuilder(scope, "Bitcast").Input(input).Attr("type", AttrValue(type)).BuildOutput();
}
Output EnsureShape(const Scope& scope, const Output& input, const PartialShape& shape) {
  return OpBuilder(scope, "EnsureShape").Input(input).Attr("shape", AttrValue(shape)).BuildOutput();
}

namespace ops::array {
namespace {

Status LinSpaceShape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  const auto num = c.InputAsInts(2);
  if (num && num->front() <= 0)
    return InvalidArgument("Requires num > 0: " + std::to_string(num->front()));
  c.set_output(0, PartialShape{num ? num->front() : -1});
  return Status();
}

Status EmptyShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.set_output(0, shape);
  return Status();
}

Status BitcastShape(ShapeContext& c) {
  const size_t from = DTypeSize(c.input_dtype(0)), to = DTypeSize(c.attr<DType>("type"));
  if (from == 0 || to == 0) return InvalidArgument("Cannot bitcast types that have no kernels");
  MG_ASSIGN_OR_RETURN(const PartialShape shape, ShapeAfterBitcast(c.input(0), from, to));
  c.set_output(0, shape);
  return Status();
}

Status EnsuredShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape,
                      PartialShape::Merge(c.input(0), c.attr<PartialShape>("shape")));
  c.set_output(0, shape);
  return Status();
}

Status UnravelShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape dims, c.WithRank(1, 1));
  const PartialShape& indices = c.input(0);
  if (!indices.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (indices.rank() > 1) return InvalidArgument("indices must be a scalar or a vector");
  c.set_output(0, indices.rank() == 0 ? PartialShape{dims.dim(0)}
                                      : PartialShape{dims.dim(0), indices.dim(0)});
  return Status();
}

Status PassGradient(GradientContext& c) {
  c.set_gradient(0, c.gradient(0));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("LinSpace")
                    .Input("start: T")
                    .Input("stop: T")
                    .Input("num: Tidx")
                    .Output("output: T")
                    .Attr("T: " MG_OP_FLOAT_TYPES)
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Shape(LinSpaceShape)
                    .NoGradient());
  registry->Add(OpDef("Empty")
                    .Input("shape: int32")
                    .Output("output: dtype")
                    .Attr("dtype: type")
                    .Attr("init: bool = false")
                    .Stateful()
                    .Shape(EmptyShape)
                    .NoGradient());
  registry->Add(OpDef("Bitcast")
                    .Input("input: T")
                    .Output("output: type")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .Attr("type: " MG_OP_REAL_TYPES)
                    .ReadsOnly()
                    .Shape(BitcastShape)
                    .NoGradient());
  registry->Add(OpDef("EnsureShape")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("shape: shape")
                    .Attr("T: type")
                    .ReadsOnly()
                    .Shape(EnsuredShape)
                    .Gradient(PassGradient));
  registry->Add(OpDef("Snapshot")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("UnravelIndex")
                    .Input("indices: Tidx")
                    .Input("dims: Tidx")
                    .Output("output: Tidx")
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Shape(UnravelShape)
                    .NoGradient());
}

}  // namespace ops::array
}  // namespace monograph
