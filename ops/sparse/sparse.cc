// Functions, shape functions, gradients and definitions. Gradients flow to values alone: an element
// gets that of the place where its value went.
#include "ops/sparse/sparse.h"

#include "graph/gradients.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/reduce/reduce.h"
#include "ops/scatter_nd/scatter_nd.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/sparse/sparse_shapes.h"
#include "ops/transpose/transpose.h"
#include "ops/types.h"

namespace monograph {

Output SparseToDense(const Scope& scope, const Output& indices, const Output& shape,
                     const Output& values, const Output& default_value, bool validate_indices) {
  return OpBuilder(scope, "SparseToDense")
      .Input(indices)
      .Input(shape)
      .Input(values)
      .Input(default_value)
      .Attr("validate_indices", AttrValue(validate_indices))
      .BuildOutput();
}

SparseTensor SparseReorder(const Scope& scope, const SparseTensor& input) {
  const Operation node = OpBuilder(scope, "SparseReorder")
                             .Input(input.indices)
                             .Input(input.values)
                             .Input(input.shape)
                             .Build();
  return {node.output(0), node.output(1), input.shape};
}

SparseFillEmptyRowsResult SparseFillEmptyRows(const Scope& scope, const SparseTensor& input,
                                              const Output& default_value) {
  const Operation node = OpBuilder(scope, "SparseFillEmptyRows")
                             .Input(input.indices)
                             .Input(input.values)
                             .Input(input.shape)
                             .Input(default_value)
                             .Build();
  return {{node.output(0), node.output(1), input.shape}, node.output(2), node.output(3)};
}

Output SparseTensorDenseMatMul(const Scope& scope, const SparseTensor& a, const Output& b,
                               bool adjoint_a, bool adjoint_b) {
  return OpBuilder(scope, "SparseTensorDenseMatMul")
      .Input(a.indices)
      .Input(a.values)
      .Input(a.shape)
      .Input(b)
      .Attr("adjoint_a", AttrValue(adjoint_a))
      .Attr("adjoint_b", AttrValue(adjoint_b))
      .BuildOutput();
}

namespace ops::sparse {

Result<Known> KnownOf(ShapeContext& c, int first, bool has_values) {
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(first, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(first + (has_values ? 2 : 1), 1));
  Known known{indices.dim(0), -1};
  if (has_values) {
    MG_ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(first + 1, 1));
    MG_ASSIGN_OR_RETURN(known.elements, ops::MergeDim(known.elements, values.dim(0),
                                                      "rows of indices and number of values"));
  }
  MG_ASSIGN_OR_RETURN(known.rank, ops::MergeDim(indices.dim(1), shape.dim(0),
                                                "columns of indices and dimensions of the shape"));
  return known;
}

namespace {

Status ReshapeShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known known, KnownOf(c, 0, false));
  MG_ASSIGN_OR_RETURN(const PartialShape to, c.WithRank(2, 1));
  c.set_output(0, PartialShape{known.elements, to.dim(0)});
  c.set_output(1, PartialShape{to.dim(0)});
  return Status();
}

Status ReorderShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known known, KnownOf(c, 0));
  c.set_output(0, PartialShape{known.elements, known.rank});
  c.set_output(1, PartialShape{known.elements});
  return Status();
}

Status ConcatShape(ShapeContext& c) {
  const int n = c.num_inputs() / 3;
  int64_t elements = 0, rank = -1;
  for (int i = 0; i < n; ++i) {
    MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(i, 2));
    MG_ASSIGN_OR_RETURN(const PartialShape values, c.WithRank(n + i, 1));
    MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(2 * n + i, 1));
    MG_ASSIGN_OR_RETURN(const int64_t own,
                        ops::MergeDim(indices.dim(0), values.dim(0), "elements"));
    if (elements < 0 || own < 0) {
      elements = -1;
    } else if (__builtin_add_overflow(elements, own, &elements)) {
      return InvalidArgument("the result is too large");
    }
    MG_ASSIGN_OR_RETURN(rank, ops::MergeDim(rank, indices.dim(1), "ranks"));
    MG_ASSIGN_OR_RETURN(rank, ops::MergeDim(rank, shape.dim(0), "ranks"));
  }
  c.set_output(0, PartialShape{elements, rank});
  c.set_output(1, PartialShape{elements});
  c.set_output(2, PartialShape{rank});
  return Status();
}

Status SplitShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  MG_ASSIGN_OR_RETURN(const Known known, KnownOf(c, 1));
  const int n = c.num_outputs() / 3;
  for (int i = 0; i < n; ++i) {
    c.set_output(i, PartialShape{-1, known.rank});
    c.set_output(n + i, PartialShape{-1});
    c.set_output(2 * n + i, PartialShape{known.rank});
  }
  return Status();
}

Status SliceShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(Known known, KnownOf(c, 0));
  for (int i : {3, 4}) {
    MG_ASSIGN_OR_RETURN(const PartialShape part, c.WithRank(i, 1));
    MG_ASSIGN_OR_RETURN(known.rank, ops::MergeDim(known.rank, part.dim(0), "ranks"));
  }
  c.set_output(0, PartialShape{-1, known.rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{known.rank});
  return Status();
}

Status SliceGradShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 2));
  c.set_output(0, PartialShape{indices.dim(0)});
  return Status();
}

Status FillEmptyRowsShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known known, KnownOf(c, 0));
  MG_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape dense, c.InputAsShape(2));
  c.set_output(0, PartialShape{-1, known.rank});
  c.set_output(1, PartialShape{-1});
  c.set_output(2, PartialShape{dense.known_rank() && dense.rank() > 0 ? dense.dim(0) : -1});
  c.set_output(3, PartialShape{known.elements});
  return Status();
}

Status FillEmptyRowsGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape map, c.WithRank(0, 1));
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, map);
  c.set_output(1, PartialShape::Scalar());
  return Status();
}

Status ToDenseShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(3, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape dense, c.InputAsShape(1));
  c.set_output(0, dense);
  return Status();
}

Status ReduceShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(KnownOf(c, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(2));
  const auto axes = c.InputAsInts(3);
  const bool keep = c.attr<bool>("keep_dims");
  if (!shape.known_rank() || !axes) {
    c.set_output(
        0, keep && shape.known_rank() ? PartialShape::UnknownOfRank(shape.rank()) : PartialShape());
    return Status();
  }
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  for (int64_t axis : *axes) {
    MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, shape.rank()));
    reduced[static_cast<size_t>(at)] = true;
  }
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i < shape.rank(); ++i) {
    if (!reduced[static_cast<size_t>(i)]) {
      output.AddDim(shape.dim(i));
    } else if (keep) {
      output.AddDim(1);
    }
  }
  c.set_output(0, output);
  return Status();
}

Status MatMulShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(KnownOf(c, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape a, c.InputAsShape(2));
  MG_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(3, 2));
  if (a.known_rank() && a.rank() != 2)
    return InvalidArgument("Tensor 'a_shape' must have 2 elements");
  const int rows = c.attr<bool>("adjoint_a") ? 1 : 0, columns = c.attr<bool>("adjoint_b") ? 0 : 1;
  if (a.known_rank()) {
    MG_RETURN_IF_ERROR(
        ops::MergeDim(a.dim(1 - rows), b.dim(1 - columns), "inner dimensions").status());
  }
  c.set_output(0, PartialShape{a.known_rank() ? a.dim(rows) : -1, b.dim(columns)});
  return Status();
}

Status ReorderGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output count = Row(s, ShapeOf(s, c.input(0)), 0);
  const Output numbers = Range(s, Const(s, 0), count, Const(s, 1));
  const SparseTensor ordered = SparseReorder(s, {c.input(0), numbers, c.input(2)});
  c.set_grad(1, Gather(s, c.grad(1), InvertPermutation(s, ordered.values)));
  return Status();
}

Status SliceGradient(GradientContext& c) {
  c.set_grad(1, OpBuilder(c.scope(), "SparseSliceGrad")
                    .Input(c.grad(1))
                    .Input(c.input(0))
                    .Input(c.input(3))
                    .Input(c.output(0))
                    .BuildOutput());
  return Status();
}

Status FillEmptyRowsGradient(GradientContext& c) {
  const Operation grads =
      OpBuilder(c.scope(), "SparseFillEmptyRowsGrad").Input(c.output(3)).Input(c.grad(1)).Build();
  c.set_grad(1, grads.output(0));
  c.set_grad(3, grads.output(1));
  return Status();
}

Status ToDenseGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output values = GatherNd(s, c.grad(0), c.input(0));
  c.set_grad(2, values);
  c.set_grad(3, Sub(s, ReduceSum(s, c.grad(0)), ReduceSum(s, values)));
  return Status();
}

// The sum that an element went into: its index where the reduced dimensions are 1.
Status ReduceGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const auto axes = ConstInts(c.input(3));
  if (!axes)
    return Unimplemented("the gradient of SparseReduceSum along axes that are no constant");
  const Output shape = Cast(s, c.input(2), DT_INT32);
  Output kept = shape;
  if (!axes->empty()) {
    const Output rank = Size(s, shape);
    const Output at = FloorMod(s, Add(s, IntsConst(s, *axes), rank), rank);
    kept = TensorScatterUpdate(s, shape, ExpandDims(s, at, 1), OnesLike(s, at));
  }
  const Output grad = Reshape(s, c.grad(0), kept);
  const Output scale = FloorDiv(s, shape, Maximum(s, kept, Const(s, 1)));
  c.set_grad(1, GatherNd(s, grad, FloorDiv(s, c.input(0), Cast(s, scale, DT_INT64))));
  return Status();
}

Status MatMulGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const bool adjoint_a = c.attrs().Get<bool>("adjoint_a"),
             adjoint_b = c.attrs().Get<bool>("adjoint_b");
  const Output b = adjoint_b ? Transpose(s, c.input(3), {1, 0}) : c.input(3);
  const Output db = SparseTensorDenseMatMul(s, {c.input(0), c.input(1), c.input(2)}, c.grad(0),
                                            !adjoint_a, false);
  c.set_grad(3, adjoint_b ? Transpose(s, db, {1, 0}) : db);
  const auto column = [&](int64_t k) {
    return Squeeze(s, Slice(s, c.input(0), {0, k}, {-1, 1}), {1});
  };
  const Output rows = column(adjoint_a ? 1 : 0), columns = column(adjoint_a ? 0 : 1);
  c.set_grad(1, Sum(s, Mul(s, Gather(s, c.grad(0), rows), Gather(s, b, columns)), {1}));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("SparseReshape")
                    .Input("input_indices: int64")
                    .Input("input_shape: int64")
                    .Input("new_shape: int64")
                    .Output("output_indices: int64")
                    .Output("output_shape: int64")
                    .Shape(ReshapeShape)
                    .NoGradient());
  registry->Add(OpDef("SparseReorder")
                    .Input("input_indices: int64")
                    .Input("input_values: T")
                    .Input("input_shape: int64")
                    .Output("output_indices: int64")
                    .Output("output_values: T")
                    .Attr("T: type")
                    .Shape(ReorderShape)
                    .Gradient(ReorderGradient));
  registry->Add(OpDef("SparseConcat")
                    .Input("indices: N * int64")
                    .Input("values: N * T")
                    .Input("shapes: N * int64")
                    .Output("output_indices: int64")
                    .Output("output_values: T")
                    .Output("output_shape: int64")
                    .Attr("concat_dim: int")
                    .Attr("N: int >= 2")
                    .Attr("T: type")
                    .Shape(ConcatShape)
                    .NoGradient());
  registry->Add(OpDef("SparseSplit")
                    .Input("split_dim: int64")
                    .Input("indices: int64")
                    .Input("values: T")
                    .Input("shape: int64")
                    .Output("output_indices: num_split * int64")
                    .Output("output_values: num_split * T")
                    .Output("output_shape: num_split * int64")
                    .Attr("num_split: int >= 1")
                    .Attr("T: type")
                    .Shape(SplitShape));
  registry->Add(OpDef("SparseSlice")
                    .Input("indices: int64")
                    .Input("values: T")
                    .Input("shape: int64")
                    .Input("start: int64")
                    .Input("size: int64")
                    .Output("output_indices: int64")
                    .Output("output_values: T")
                    .Output("output_shape: int64")
                    .Attr("T: type")
                    .Shape(SliceShape)
                    .Gradient(SliceGradient));
  registry->Add(OpDef("SparseSliceGrad")
                    .Input("backprop_val_grad: T")
                    .Input("input_indices: int64")
                    .Input("input_start: int64")
                    .Input("output_indices: int64")
                    .Output("val_grad: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Shape(SliceGradShape)
                    .NoGradient());
  registry->Add(OpDef("SparseFillEmptyRows")
                    .Input("indices: int64")
                    .Input("values: T")
                    .Input("dense_shape: int64")
                    .Input("default_value: T")
                    .Output("output_indices: int64")
                    .Output("output_values: T")
                    .Output("empty_row_indicator: bool")
                    .Output("reverse_index_map: int64")
                    .Attr("T: type")
                    .Shape(FillEmptyRowsShape)
                    .Gradient(FillEmptyRowsGradient));
  registry->Add(OpDef("SparseFillEmptyRowsGrad")
                    .Input("reverse_index_map: int64")
                    .Input("grad_values: T")
                    .Output("d_values: T")
                    .Output("d_default_value: T")
                    .Attr("T: type")
                    .Shape(FillEmptyRowsGradShape)
                    .NoGradient());
  registry->Add(OpDef("SparseToDense")
                    .Input("sparse_indices: Tindices")
                    .Input("output_shape: Tindices")
                    .Input("sparse_values: T")
                    .Input("default_value: T")
                    .Output("dense: T")
                    .Attr("validate_indices: bool = true")
                    .Attr("T: type")
                    .Attr("Tindices: {int32, int64}")
                    .Shape(ToDenseShape)
                    .Gradient(ToDenseGradient));
  registry->Add(OpDef("SparseReduceSum")
                    .Input("input_indices: int64")
                    .Input("input_values: T")
                    .Input("input_shape: int64")
                    .Input("reduction_axes: int32")
                    .Output("output: T")
                    .Attr("keep_dims: bool = false")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Shape(ReduceShape)
                    .Gradient(ReduceGradient));
  registry->Add(OpDef("SparseTensorDenseMatMul")
                    .Input("a_indices: Tindices")
                    .Input("a_values: T")
                    .Input("a_shape: int64")
                    .Input("b: T")
                    .Output("product: T")
                    .Attr("T: type")
                    .Attr("Tindices: {int32, int64} = DT_INT64")
                    .Attr("adjoint_a: bool = false")
                    .Attr("adjoint_b: bool = false")
                    .Shape(MatMulShape)
                    .Gradient(MatMulGradient));
  DefineArithmetic(registry);
  DefineCrossAndSets(registry);
}

}  // namespace ops::sparse
}  // namespace monograph
