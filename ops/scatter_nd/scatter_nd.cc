// Functions, shape functions, gradients and definitions. GatherNd and ScatterNd are each other's
// gradients; that of GatherNd of whole rows, of a variable, too, is rows (graph/gradients.h).
#include "ops/scatter_nd/scatter_nd.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/shape.h"
#include "ops/types.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

Output TensorScatter(const Scope& scope, const char* op, const Output& tensor,
                     const Output& indices, const Output& updates) {
  return OpBuilder(scope, op).Input(tensor).Input(indices).Input(updates).BuildOutput();
}

}  // namespace

Output GatherNd(const Scope& scope, const Output& params, const Output& indices) {
  return OpBuilder(scope, "GatherNd").Input(params).Input(indices).BuildOutput();
}

Output ResourceGatherNd(const Scope& scope, const Output& handle, const Output& indices,
                        DType dtype) {
  return OpBuilder(scope, "ResourceGatherNd")
      .Input(handle)
      .Input(indices)
      .Attr("dtype", AttrValue(dtype))
      .BuildOutput();
}

Output ScatterNd(const Scope& scope, const Output& indices, const Output& updates,
                 const Output& shape) {
  return OpBuilder(scope, "ScatterNd").Input(indices).Input(updates).Input(shape).BuildOutput();
}

Output TensorScatterUpdate(const Scope& scope, const Output& tensor, const Output& indices,
                           const Output& updates) {
  return TensorScatter(scope, "TensorScatterUpdate", tensor, indices, updates);
}
Output TensorScatterAdd(const Scope& scope, const Output& tensor, const Output& indices,
                        const Output& updates) {
  return TensorScatter(scope, "TensorScatterAdd", tensor, indices, updates);
}
Output TensorScatterSub(const Scope& scope, const Output& tensor, const Output& indices,
                        const Output& updates) {
  return TensorScatter(scope, "TensorScatterSub", tensor, indices, updates);
}

namespace ops::scatter_nd {
namespace {

// The depth that the shape of `indices` tells; -1: not known.
Result<int64_t> DepthFor(const PartialShape& indices, const PartialShape& whole) {
  if (!indices.known_rank()) return int64_t{-1};
  if (indices.rank() < 1) return InvalidArgument("indices must have at least one dimension");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (whole.known_rank() && depth > whole.rank()) {
    return InvalidArgument("indices of shape " + indices.ToString() + " name more than the " +
                           std::to_string(whole.rank()) + " dimensions of " + whole.ToString());
  }
  return depth;
}

Status GatherNdShape(ShapeContext& c) {  // also that of ResourceGatherNd
  const bool of_variable = c.input_dtype(0) == DT_RESOURCE;
  const PartialShape &params = of_variable ? c.handle_shape(0) : c.input(0), &indices = c.input(1);
  if (params.known_rank() && params.rank() < 1)
    return InvalidArgument("params must have at least one dimension");
  MG_ASSIGN_OR_RETURN(const int64_t depth, DepthFor(indices, params));
  PartialShape output;
  if (depth >= 0 && params.known_rank()) {
    if (indices.rank() - 1 + params.rank() - depth > kMaxRank) return TooManyDimensions();
    output = PartialShape::Scalar();
    for (int i = 0; i + 1 < indices.rank(); ++i) output.AddDim(indices.dim(i));
    for (auto i = static_cast<int>(depth); i < params.rank(); ++i) output.AddDim(params.dim(i));
  }
  c.set_output(0, output);
  return Status();
}

// Whether updates have the shape of the slices of `whole`.
Status CheckUpdates(const PartialShape& whole, const PartialShape& indices,
                    const PartialShape& updates) {
  MG_ASSIGN_OR_RETURN(const int64_t depth, DepthFor(indices, whole));
  if (depth < 0 || !whole.known_rank() || !updates.known_rank()) return Status();
  const int outer = indices.rank() - 1;
  bool fits = updates.rank() == outer + whole.rank() - depth;
  for (int i = 0; fits && i < updates.rank(); ++i) {
    const int64_t wanted =
        i < outer ? indices.dim(i) : whole.dim(i - outer + static_cast<int>(depth));
    fits = wanted < 0 || updates.dim(i) < 0 || wanted == updates.dim(i);
  }
  if (fits) return Status();
  return InvalidArgument("updates of shape " + updates.ToString() +
                         " do not fit indices of shape " + indices.ToString() + " into shape " +
                         whole.ToString());
}

Status ScatterNdShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(2));
  MG_RETURN_IF_ERROR(CheckUpdates(shape, c.input(0), c.input(1)));
  c.set_output(0, shape);
  return Status();
}

Status TensorScatterShape(ShapeContext& c) {
  if (c.input(0).known_rank() && c.input(0).rank() < 1)
    return InvalidArgument("the tensor must have at least one dimension");
  MG_RETURN_IF_ERROR(CheckUpdates(c.input(0), c.input(1), c.input(2)));
  c.set_output(0, c.input(0));
  return Status();
}

Status GatherNdGradient(GradientContext& c) {  // also that of ResourceGatherNd
  const Scope& s = c.scope();
  const PartialShape& indices = c.input(1).shape();
  if (indices.known_rank() && indices.rank() == 2 && indices.dim(1) == 1) {
    c.set_gradient(0, {c.grad(0), Squeeze(s, c.input(1), {-1})});
    return Status();
  }
  const Output params = c.input(0);
  const DType index = c.input(1).dtype();
  const Output shape =
      params.dtype() == DT_RESOURCE ? VariableShape(s, params, index) : ShapeOf(s, params, index);
  c.set_grad(0, ScatterNd(s, c.input(1), c.grad(0), shape));
  return Status();
}

Status ScatterNdGradient(GradientContext& c) {
  c.set_grad(1, GatherNd(c.scope(), c.grad(0), c.input(0)));
  return Status();
}

Status TensorScatterUpdateGradient(GradientContext& c) {
  const Scope& s = c.scope();
  c.set_grad(0, TensorScatterUpdate(s, c.grad(0), c.input(1), ZerosLike(s, c.input(2))));
  c.set_grad(2, GatherNd(s, c.grad(0), c.input(1)));
  return Status();
}

Status TensorScatterAddGradient(GradientContext& c) {  // also ScatterNdNonAliasingAdd
  c.set_gradient(0, c.gradient(0));
  c.set_grad(2, GatherNd(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

Status TensorScatterSubGradient(GradientContext& c) {
  c.set_gradient(0, c.gradient(0));
  c.set_grad(2, Neg(c.scope(), GatherNd(c.scope(), c.grad(0), c.input(1))));
  return Status();
}

// Elements that are equally small, or large, share the gradient.
Status TensorScatterMinMaxGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), indices = c.input(1), y = c.input(2), out = c.output(0);
  const DType dtype = x.dtype();
  const Output from_x = Cast(s, Equal(s, x, out), dtype);
  const Output from_y = Cast(s, Equal(s, y, GatherNd(s, out, indices)), dtype);
  const Output shares =
      Add(s, from_x, ScatterNd(s, indices, from_y, ShapeOf(s, x, indices.dtype())));
  const Output each = RealDiv(s, c.grad(0), shares);
  c.set_grad(0, Mul(s, each, from_x));
  c.set_grad(2, Mul(s, GatherNd(s, each, indices), from_y));
  return Status();
}

OpDef TensorScatterDef(const char* name, GradientFn gradient) {
  return OpDef(name)
      .Input("tensor: T")
      .Input("indices: Tindices")
      .Input("updates: T")
      .Output("output: T")
      .Attr("T: type")
      .Attr("Tindices: {int32, int64}")
      .Attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''")
      .Shape(TensorScatterShape)
      .Gradient(gradient);
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("GatherNd")
                    .Input("params: Tparams")
                    .Input("indices: Tindices")
                    .Output("output: Tparams")
                    .Attr("Tparams: type")
                    .Attr("Tindices: {int32, int64}")
                    .Attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''")
                    .Shape(GatherNdShape)
                    .Gradient(GatherNdGradient));
  registry->Add(OpDef("ResourceGatherNd")
                    .Input("resource: resource")
                    .Input("indices: Tindices")
                    .Output("output: dtype")
                    .Attr("dtype: type")
                    .Attr("Tindices: {int32, int64}")
                    .Stateful()
                    .ReadsOnly()
                    .Shape(GatherNdShape)
                    .Gradient(GatherNdGradient));
  registry->Add(OpDef("ScatterNd")
                    .Input("indices: Tindices")
                    .Input("updates: T")
                    .Input("shape: Tindices")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tindices: {int32, int64}")
                    .Attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''")
                    .Shape(ScatterNdShape)
                    .Gradient(ScatterNdGradient));
  registry->Add(OpDef("ScatterNdNonAliasingAdd")
                    .Input("input: T")
                    .Input("indices: Tindices")
                    .Input("updates: T")
                    .Output("output: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("Tindices: {int32, int64}")
                    .Attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''")
                    .Shape(TensorScatterShape)
                    .Gradient(TensorScatterAddGradient));
  registry->Add(TensorScatterDef("TensorScatterUpdate", TensorScatterUpdateGradient));
  registry->Add(TensorScatterDef("TensorScatterAdd", TensorScatterAddGradient));
  registry->Add(TensorScatterDef("TensorScatterSub", TensorScatterSubGradient));
  registry->Add(TensorScatterDef("TensorScatterMin", TensorScatterMinMaxGradient));
  registry->Add(TensorScatterDef("TensorScatterMax", TensorScatterMinMaxGradient));
  for (const char* name : {"InplaceUpdate", "InplaceAdd", "InplaceSub"}) {
    registry->Add(OpDef(name)
                      .Input("x: T")
                      .Input("i: int32")
                      .Input("v: T")
                      .Output("y: T")
                      .Attr("T: type")
                      .Shape(UnchangedShape)
                      .NoGradient());
  }
  registry->Add(OpDef("DeepCopy")
                    .Input("x: T")
                    .Output("y: T")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(UnchangedShape)
                    .NoGradient());
}

}  // namespace ops::scatter_nd
}  // namespace monograph
