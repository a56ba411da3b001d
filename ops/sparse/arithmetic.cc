// Definitions of arithmetic with sparse tensors: SparseAdd, SparseSparseMaximum and Minimum,
// SparseTensorDenseAdd, SparseDenseCwiseAdd, Mul and Div, SparseSoftmax. As in sparse.cc, gradients
// flow to values, and to dense tensors; where TensorFlow has none there is none here.
#include "graph/gradients.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/scatter_nd/scatter_nd.h"
#include "ops/shape/shape.h"
#include "ops/sparse/sparse.h"
#include "ops/sparse/sparse_shapes.h"
#include "ops/types.h"

namespace monograph {

SparseTensor SparseAdd(const Scope& scope, const SparseTensor& a, const SparseTensor& b,
                       const Output& thresh) {
  const Operation node = OpBuilder(scope, "SparseAdd")
                             .Input(a.indices)
                             .Input(a.values)
                             .Input(a.shape)
                             .Input(b.indices)
                             .Input(b.values)
                             .Input(b.shape)
                             .Input(thresh)
                             .Build();
  return {node.output(0), node.output(1), node.output(2)};
}

Output SparseTensorDenseAdd(const Scope& scope, const SparseTensor& a, const Output& b) {
  return OpBuilder(scope, "SparseTensorDenseAdd")
      .Input(a.indices)
      .Input(a.values)
      .Input(a.shape)
      .Input(b)
      .BuildOutput();
}

SparseTensor SparseSoftmax(const Scope& scope, const SparseTensor& input) {
  const Output values = OpBuilder(scope, "SparseSoftmax")
                            .Input(input.indices)
                            .Input(input.values)
                            .Input(input.shape)
                            .BuildOutput();
  return {input.indices, values, input.shape};
}

namespace ops::sparse {
namespace {

// Two sparse tensors of one rank; the rank of the result.
Result<int64_t> RankOfBoth(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known a, KnownOf(c, 0));
  MG_ASSIGN_OR_RETURN(const Known b, KnownOf(c, 3));
  return ops::MergeDim(a.rank, b.rank, "ranks");
}

Status AddShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const int64_t rank, RankOfBoth(c));
  MG_RETURN_IF_ERROR(c.WithRank(6, 0).status());
  c.set_output(0, PartialShape{-1, rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{rank});
  return Status();
}

Status AddGradShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(3, 2).status());
  for (int i = 0; i < 2; ++i) {
    MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1 + i, 2));
    c.set_output(i, PartialShape{indices.dim(0)});
  }
  return Status();
}

Status ExtremeShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const int64_t rank, RankOfBoth(c));
  c.set_output(0, PartialShape{-1, rank});
  c.set_output(1, PartialShape{-1});
  return Status();
}

Status DenseAddShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(KnownOf(c, 0).status());
  c.set_output(0, c.input(3));
  return Status();
}

// Values for the values of a sparse tensor.
Status ValuesShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known known, KnownOf(c, 0));
  c.set_output(0, PartialShape{known.elements});
  return Status();
}

Status AddGradient(GradientContext& c) {
  const Operation grads = OpBuilder(c.scope(), "SparseAddGrad")
                              .Input(c.grad(1))
                              .Input(c.input(0))
                              .Input(c.input(3))
                              .Input(c.output(0))
                              .Build();
  c.set_grad(1, grads.output(0));
  c.set_grad(4, grads.output(1));
  return Status();
}

Status DenseAddGradient(GradientContext& c) {
  c.set_grad(1, GatherNd(c.scope(), c.grad(0), c.input(0)));
  c.set_grad(3, c.grad(0));
  return Status();
}

// Of x op y, where y is repeated: an element of y gets the sum over the places that it went to.
Status CwiseGradient(GradientContext& c, bool is_mul) {
  const Scope& s = c.scope();
  const Output x = c.input(1), shape = c.input(2), grad = c.grad(0);
  // y with as many dimensions as x. Of one that is repeated only place 0 is meant.
  const Output y_shape = Cast(s, ShapeOf(s, c.input(3)), DT_INT64), one = Const<int64_t>(s, 1);
  const Output missing = ExpandDims(s, Sub(s, Size(s, shape), Size(s, y_shape)), 0);
  const Output whole = Concat(s, {Fill(s, missing, one), y_shape}, 0);
  const Output y = Reshape(s, c.input(3), whole);
  const Output places = FloorDiv(s, c.input(0), FloorDiv(s, shape, Maximum(s, whole, one)));
  const Output at = GatherNd(s, y, places);
  c.set_grad(1, is_mul ? Mul(s, grad, at) : RealDiv(s, grad, at));
  const Output dy = is_mul ? Mul(s, grad, x) : Mul(s, grad, RealDiv(s, Neg(s, x), Square(s, at)));
  c.set_grad(3, Reshape(s, SparseTensorDenseAdd(s, {places, dy, whole}, ZerosLike(s, y)), y_shape));
  return Status();
}
Status CwiseMulGradient(GradientContext& c) { return CwiseGradient(c, true); }
Status CwiseDivGradient(GradientContext& c) { return CwiseGradient(c, false); }

// y * (g - the row's sum of y * g)
Status SparseSoftmaxGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.output(0), grad = c.grad(0), indices = c.input(0), shape = c.input(2);
  const Output sums = OpBuilder(s, "SparseReduceSum")
                          .Input(indices)
                          .Input(Mul(s, y, grad))
                          .Input(shape)
                          .Input(IntsConst(s, {-1}))
                          .Attr("keep_dims", AttrValue(true))
                          .BuildOutput();
  const Output less = OpBuilder(s, "SparseDenseCwiseAdd")
                          .Input(indices)
                          .Input(grad)
                          .Input(shape)
                          .Input(Neg(s, sums))
                          .BuildOutput();
  c.set_grad(1, Mul(s, less, y));
  return Status();
}

OpDef TwoSparse(const char* name) {
  OpDef def(name);
  for (const char* side : {"a", "b"}) {
    const std::string prefix = side;
    def.Input(prefix + "_indices: int64")
        .Input(prefix + "_values: T")
        .Input(prefix + "_shape: int64");
  }
  return def;
}

OpDef CwiseDef(const char* name) {
  return OpDef(name)
      .Input("sp_indices: int64")
      .Input("sp_values: T")
      .Input("sp_shape: int64")
      .Input("dense: T")
      .Output("output: T")
      .Attr("T: " MG_OP_NUMBER_TYPES)
      .Shape(ValuesShape);
}

}  // namespace

void DefineArithmetic(OpRegistry* registry) {
  registry->Add(TwoSparse("SparseAdd")
                    .Input("thresh: Treal")
                    .Output("sum_indices: int64")
                    .Output("sum_values: T")
                    .Output("sum_shape: int64")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("Treal: " MG_OP_REAL_TYPES)
                    .Shape(AddShape)
                    .Gradient(AddGradient));
  registry->Add(OpDef("SparseAddGrad")
                    .Input("backprop_val_grad: T")
                    .Input("a_indices: int64")
                    .Input("b_indices: int64")
                    .Input("sum_indices: int64")
                    .Output("a_val_grad: T")
                    .Output("b_val_grad: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Shape(AddGradShape)
                    .NoGradient());
  for (const char* name : {"SparseSparseMaximum", "SparseSparseMinimum"}) {
    registry->Add(TwoSparse(name)
                      .Output("output_indices: int64")
                      .Output("output_values: T")
                      .Attr(std::string("T: ") + (name == std::string("SparseSparseMaximum")
                                                      ? MG_OP_REAL_TYPES
                                                      : MG_OP_NUMBER_TYPES))
                      .Shape(ExtremeShape));
  }
  registry->Add(OpDef("SparseTensorDenseAdd")
                    .Input("a_indices: Tindices")
                    .Input("a_values: T")
                    .Input("a_shape: Tindices")
                    .Input("b: T")
                    .Output("output: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("Tindices: {int32, int64}")
                    .Shape(DenseAddShape)
                    .Gradient(DenseAddGradient));
  registry->Add(CwiseDef("SparseDenseCwiseAdd"));
  registry->Add(CwiseDef("SparseDenseCwiseMul").Gradient(CwiseMulGradient));
  registry->Add(CwiseDef("SparseDenseCwiseDiv").Gradient(CwiseDivGradient));
  registry->Add(OpDef("SparseSoftmax")
                    .Input("sp_indices: int64")
                    .Input("sp_values: T")
                    .Input("sp_shape: int64")
                    .Output("output: T")
                    .Attr("T: {half, float, double}")
                    .Shape(ValuesShape)
                    .Gradient(SparseSoftmaxGradient));
}

}  // namespace ops::sparse
}  // namespace monograph
