// Functions, shape functions, gradients and definitions. A gradient is that of the segment,
// gathered by id; of products it is divided by each factor, where a factor of 0 gets the product of
// the others; of the smallest and largest it is shared between those that are equal.
#include "ops/segment/segment.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/types.h"

namespace monograph {
namespace {

Output Node(const Scope& scope, const char* op, std::initializer_list<Output> inputs) {
  OpBuilder builder(scope, op);
  for (const Output& input : inputs) builder.Input(input);
  return builder.BuildOutput();
}

}  // namespace

Output SegmentSum(const Scope& scope, const Output& data, const Output& segment_ids) {
  return Node(scope, "SegmentSum", {data, segment_ids});
}
Output SegmentMean(const Scope& scope, const Output& data, const Output& segment_ids) {
  return Node(scope, "SegmentMean", {data, segment_ids});
}
Output SegmentProd(const Scope& scope, const Output& data, const Output& segment_ids) {
  return Node(scope, "SegmentProd", {data, segment_ids});
}
Output SegmentMin(const Scope& scope, const Output& data, const Output& segment_ids) {
  return Node(scope, "SegmentMin", {data, segment_ids});
}
Output SegmentMax(const Scope& scope, const Output& data, const Output& segment_ids) {
  return Node(scope, "SegmentMax", {data, segment_ids});
}
Output UnsortedSegmentProd(const Scope& scope, const Output& data, const Output& segment_ids,
                           const Output& num_segments) {
  return Node(scope, "UnsortedSegmentProd", {data, segment_ids, num_segments});
}
Output UnsortedSegmentMin(const Scope& scope, const Output& data, const Output& segment_ids,
                          const Output& num_segments) {
  return Node(scope, "UnsortedSegmentMin", {data, segment_ids, num_segments});
}
Output UnsortedSegmentMax(const Scope& scope, const Output& data, const Output& segment_ids,
                          const Output& num_segments) {
  return Node(scope, "UnsortedSegmentMax", {data, segment_ids, num_segments});
}
Output SparseSegmentSum(const Scope& scope, const Output& data, const Output& indices,
                        const Output& segment_ids) {
  return Node(scope, "SparseSegmentSum", {data, indices, segment_ids});
}
Output SparseSegmentMean(const Scope& scope, const Output& data, const Output& indices,
                         const Output& segment_ids) {
  return Node(scope, "SparseSegmentMean", {data, indices, segment_ids});
}
Output SparseSegmentSqrtN(const Scope& scope, const Output& data, const Output& indices,
                          const Output& segment_ids) {
  return Node(scope, "SparseSegmentSqrtN", {data, indices, segment_ids});
}

namespace ops::segment {
namespace {

// [rows] + the dimensions of input 0 behind the first `dropped`.
Status RowsShape(ShapeContext& c, int64_t rows, int dropped) {
  const PartialShape& data = c.input(0);
  if (!data.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (data.rank() < dropped)
    return InvalidArgument("data must have at least one dimension, not shape " + data.ToString());
  if (data.rank() - dropped == kMaxRank) return TooManyDimensions();
  PartialShape output{rows};
  for (int i = dropped; i < data.rank(); ++i) output.AddDim(data.dim(i));
  c.set_output(0, output);
  return Status();
}

Status SegmentShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape ids, c.WithRank(1, 1));
  const PartialShape& data = c.input(0);
  if (data.known_rank() && data.rank() > 0 && data.dim(0) >= 0 && ids.dim(0) >= 0 &&
      data.dim(0) != ids.dim(0)) {
    return InvalidArgument("there are " + std::to_string(ids.dim(0)) +
                           " segment_ids for data of shape " + data.ToString());
  }
  return RowsShape(c, -1, 1);
}

// The number in scalar input i, where it is known.
Result<int64_t> CountIn(ShapeContext& c, int i, const char* name) {
  MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  const auto value = c.InputAsInts(i);
  if (value && value->front() < 0)
    return InvalidArgument(std::string(name) + " must not be negative");
  return value ? value->front() : int64_t{-1};
}

Status UnsortedShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const int64_t rows, CountIn(c, 2, "num_segments"));
  const PartialShape &data = c.input(0), &ids = c.input(1);
  if (!data.known_rank() || !ids.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  bool fits = ids.rank() <= data.rank();
  for (int i = 0; fits && i < ids.rank(); ++i)
    fits = ids.dim(i) < 0 || data.dim(i) < 0 || ids.dim(i) == data.dim(i);
  if (!fits) {
    return InvalidArgument("data of shape " + data.ToString() + " does not begin with the shape " +
                           ids.ToString() + " of segment_ids");
  }
  return RowsShape(c, rows, ids.rank());
}

Status CheckSparseIds(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(1, 1));
  MG_ASSIGN_OR_RETURN(const PartialShape ids, c.WithRank(2, 1));
  return PartialShape::Merge(indices, ids).status();
}

Status SparseShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(CheckSparseIds(c));
  return RowsShape(c, -1, 1);
}

Status SparseCountedShape(ShapeContext& c) {  // num_segments; or output_dim0, of the gradients
  MG_RETURN_IF_ERROR(CheckSparseIds(c));
  MG_ASSIGN_OR_RETURN(const int64_t rows, CountIn(c, 3, "the number of rows"));
  return RowsShape(c, rows, 1);
}

Output Zero(const Scope& s, DType dtype) { return ScalarConst(s, 0, dtype); }

Status SumGradient(GradientContext& c) {
  c.set_grad(0, Gather(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

Status MeanGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output counts = SegmentSum(s, OnesLike(s, c.input(0)), c.input(1));
  c.set_grad(0, Gather(s, RealDiv(s, c.grad(0), counts), c.input(1)));
  return Status();
}

Status MinMaxGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output data = c.input(0), ids = c.input(1);
  const Output chosen = Equal(s, data, Gather(s, c.output(0), ids));
  const Output count = SegmentSum(s, Cast(s, chosen, data.dtype()), ids);
  const Output each = Gather(s, RealDiv(s, c.grad(0), count), ids);
  c.set_grad(0, Select(s, chosen, each, Zero(s, data.dtype())));
  return Status();
}

// The derivative of a segment's product by each factor. `others`: the products of the factors that
// are not 0; `zeros`: how many are.
Status ProdGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output data = c.input(0), ids = c.input(1);
  const DType dtype = data.dtype();
  const Output is_zero = Equal(s, data, Zero(s, dtype));
  const Output zeros = SegmentSum(s, Cast(s, is_zero, DT_INT32), ids);
  const Output grad = Select(s, Greater(s, zeros, Const(s, 1)), ZerosLike(s, c.grad(0)), c.grad(0));
  const Output factors = Select(s, is_zero, OnesLike(s, data), data);
  const Output others = Gather(s, SegmentProd(s, factors, ids), ids);
  const Output divided = RealDiv(s, Gather(s, c.output(0), ids), factors);
  c.set_grad(0, Mul(s, Gather(s, grad, ids), Select(s, is_zero, others, divided)));
  return Status();
}

// Rows of `params` by id; zeros for negative ids. `kept`: which elements are not.
Output GatherKept(const Scope& s, const Output& params, const Output& ids, Output* kept) {
  const Output rows = Gather(s, params, Maximum(s, ids, ZerosLike(s, ids)));
  const Output positive = GreaterEqual(s, ids, ZerosLike(s, ids));
  const Output tail = Fill(s, Reshape(s, Sub(s, Rank(s, rows), Rank(s, ids)), {1}), Const(s, 1));
  *kept = Reshape(s, positive, Concat(s, {ShapeOf(s, ids), tail}, 0));
  return Select(s, *kept, rows, Zero(s, params.dtype()));
}

Status UnsortedMinMaxGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output data = c.input(0), ids = c.input(1);
  Output kept;
  const Output rows = GatherKept(s, c.output(0), ids, &kept);
  const Output chosen = LogicalAnd(s, Equal(s, data, rows), kept);
  const Output count = UnsortedSegmentSum(s, Cast(s, chosen, data.dtype()), ids, c.input(2));
  const Output each = GatherKept(s, RealDiv(s, c.grad(0), count), ids, &kept);
  c.set_grad(0, Select(s, chosen, each, Zero(s, data.dtype())));
  return Status();
}

Status UnsortedProdGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output data = c.input(0), ids = c.input(1), n = c.input(2);
  const DType dtype = data.dtype();
  const Output is_zero = Equal(s, data, Zero(s, dtype));
  const Output zeros = UnsortedSegmentSum(s, Cast(s, is_zero, DT_INT32), ids, n);
  const Output grad = Select(s, Greater(s, zeros, Const(s, 1)), ZerosLike(s, c.grad(0)), c.grad(0));
  const Output factors = Select(s, is_zero, OnesLike(s, data), data);
  Output kept;
  const Output others = GatherKept(s, UnsortedSegmentProd(s, factors, ids, n), ids, &kept);
  const Output divided = RealDiv(s, GatherKept(s, c.output(0), ids, &kept), factors);
  c.set_grad(0, Mul(s, GatherKept(s, grad, ids, &kept), Select(s, is_zero, others, divided)));
  return Status();
}

Status SparseSumGradient(GradientContext& c) {  // rows
  c.set_gradient(0, {Gather(c.scope(), c.grad(0), c.input(2)), c.input(1)});
  return Status();
}

Status SparseScaledGradient(GradientContext& c, const char* op) {
  const Scope& s = c.scope();
  const Output rows = Row(s, ShapeOf(s, c.input(0)), 0);
  c.set_grad(0, Node(s, op, {c.grad(0), c.input(1), c.input(2), rows}));
  return Status();
}
Status SparseMeanGradient(GradientContext& c) {
  return SparseScaledGradient(c, "SparseSegmentMeanGrad");
}
Status SparseSqrtNGradient(GradientContext& c) {
  return SparseScaledGradient(c, "SparseSegmentSqrtNGrad");
}

}  // namespace

void Define(OpRegistry* registry) {
  const auto sorted = [registry](const char* name, const char* types, GradientFn gradient) {
    registry->Add(OpDef(name)
                      .Input("data: T")
                      .Input("segment_ids: Tindices")
                      .Output("output: T")
                      .Attr(types)
                      .Attr("Tindices: {int32, int64}")
                      .Shape(SegmentShape)
                      .Gradient(gradient));
  };
  sorted("SegmentSum", "T: " MG_OP_NUMBER_TYPES, SumGradient);
  sorted("SegmentMean", "T: " MG_OP_NUMBER_TYPES, MeanGradient);
  sorted("SegmentProd", "T: " MG_OP_NUMBER_TYPES, ProdGradient);
  sorted("SegmentMin", "T: " MG_OP_REAL_TYPES, MinMaxGradient);
  sorted("SegmentMax", "T: " MG_OP_REAL_TYPES, MinMaxGradient);
  const auto unsorted = [registry](const char* name, const char* types, GradientFn gradient) {
    registry->Add(OpDef(name)
                      .Input("data: T")
                      .Input("segment_ids: Tindices")
                      .Input("num_segments: Tnumsegments")
                      .Output("output: T")
                      .Attr(types)
                      .Attr("Tindices: {int32, int64}")
                      .Attr("Tnumsegments: {int32, int64} = DT_INT32")
                      .Shape(UnsortedShape)
                      .Gradient(gradient));
  };
  unsorted("UnsortedSegmentProd", "T: " MG_OP_NUMBER_TYPES, UnsortedProdGradient);
  unsorted("UnsortedSegmentMin", "T: " MG_OP_REAL_TYPES, UnsortedMinMaxGradient);
  unsorted("UnsortedSegmentMax", "T: " MG_OP_REAL_TYPES, UnsortedMinMaxGradient);
  struct Sparse {
    const char* name;
    const char* types;
    GradientFn gradient;
  };
  for (const Sparse& sparse :
       {Sparse{"SparseSegmentSum", "T: " MG_OP_REAL_TYPES, SparseSumGradient},
        Sparse{"SparseSegmentMean", "T: " MG_OP_FLOAT_TYPES, SparseMeanGradient},
        Sparse{"SparseSegmentSqrtN", "T: " MG_OP_FLOAT_TYPES, SparseSqrtNGradient}}) {
    const auto def = [&sparse](const std::string& name) {
      return OpDef(name)
          .Input("data: T")
          .Input("indices: Tidx")
          .Input("segment_ids: Tsegmentids")
          .Output("output: T")
          .Attr(sparse.types)
          .Attr("Tidx: {int32, int64} = DT_INT32")
          .Attr("Tsegmentids: {int32, int64} = DT_INT32")
          .Attr("sparse_gradient: bool = false")
          .Gradient(sparse.gradient);
    };
    registry->Add(def(sparse.name).Shape(SparseShape));
    registry->Add(def(std::string(sparse.name) + "WithNumSegments")
                      .Input("num_segments: Tnumsegments")
                      .Attr("Tnumsegments: {int32, int64} = DT_INT32")
                      .Shape(SparseCountedShape));
    registry->Add(OpDef(std::string(sparse.name) + "Grad")
                      .Input("grad: T")
                      .Input("indices: Tidx")
                      .Input("segment_ids: Tsegmentids")
                      .Input("output_dim0: int32")
                      .Output("output: T")
                      .Attr("T: " MG_OP_FLOAT_TYPES)
                      .Attr("Tidx: {int32, int64} = DT_INT32")
                      .Attr("Tsegmentids: {int32, int64} = DT_INT32")
                      .Shape(SparseCountedShape)
                      .NoGradient());
  }
}

}  // namespace ops::segment
}  // namespace monograph
