// Functions, shape functions, gradients and definitions. A gradient first puts the reduced
// dimensions back as 1 (WithKeptDims) and then broadcasts to the input's shape. Shapes that are
// known become constants; others are computed by nodes in the step. The gradient of Prod multiplies
// what comes before an element with what comes after it, where dividing the product by the element
// would fail for zeros.
#include "ops/reduce/reduce.h"

#include <limits>
#include <numeric>
#include <string>

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/transpose/transpose.h"
#include "ops/types.h"
#include "ops/unique/unique.h"

namespace monograph {
namespace {

Output Reduce(const Scope& scope, std::string_view op, const Output& input, const Output& axes,
              bool keep_dims) {
  return OpBuilder(scope, op).Input(input).Input(axes).Attr("keep_dims", keep_dims).BuildOutput();
}

Output AxesConst(const Scope& scope, std::string_view op, std::initializer_list<int64_t> axes) {
  return IntsConst(scope.WithOpName(std::string(op) + "/reduction_indices"), axes);
}

Output Scan(const Scope& scope, std::string_view op, const Output& x, const Output& axis,
            bool exclusive, bool reverse) {
  return OpBuilder(scope, op)
      .Input(x)
      .Input(axis)
      .Attr("exclusive", exclusive)
      .Attr("reverse", reverse)
      .BuildOutput();
}

Output ArgReduce(const Scope& scope, std::string_view op, const Output& input, int axis,
                 DType output_type) {
  return OpBuilder(scope, op)
      .Input(input)
      .Input(Const(scope.WithOpName(std::string(op) + "/dimension"), axis))
      .Attr("output_type", output_type)
      .BuildOutput();
}

}  // namespace

#define MG_REDUCE(op)                                                                      \
  Output op(const Scope& scope, const Output& input, const Output& axes, bool keep_dims) { \
    return Reduce(scope, #op, input, axes, keep_dims);                                     \
  }
MG_REDUCE(Sum)
MG_REDUCE(Mean)
MG_REDUCE(Max)
MG_REDUCE(Min)
MG_REDUCE(Prod)
MG_REDUCE(EuclideanNorm)
MG_REDUCE(All)
MG_REDUCE(Any)
#undef MG_REDUCE

#define MG_REDUCE_CONST(op)                                                               \
  Output op(const Scope& scope, const Output& input, std::initializer_list<int64_t> axes, \
            bool keep_dims) {                                                             \
    return Reduce(scope, #op, input, AxesConst(scope, #op, axes), keep_dims);             \
  }
MG_REDUCE_CONST(Sum)
MG_REDUCE_CONST(Mean)
MG_REDUCE_CONST(Max)
#undef MG_REDUCE_CONST

Output AllAxes(const Scope& scope, const Output& input) {
  if (!input.valid()) return {};
  const PartialShape shape = input.shape();
  if (shape.known_rank()) {
    std::vector<int64_t> axes(static_cast<size_t>(shape.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    return IntsConst(scope.WithOpName("Const"), axes);
  }
  return Range(scope, Const(scope, 0), Rank(scope, input), Const(scope, 1));
}

Output ReduceSum(const Scope& scope, const Output& input) {
  return Sum(scope, input, AllAxes(scope, input));
}
Output ReduceMean(const Scope& scope, const Output& input) {
  return Mean(scope, input, AllAxes(scope, input));
}
Output ReduceMax(const Scope& scope, const Output& input) {
  return Max(scope, input, AllAxes(scope, input));
}

Output ArgMax(const Scope& scope, const Output& input, int axis, DType output_type) {
  return ArgReduce(scope, "ArgMax", input, axis, output_type);
}
Output ArgMin(const Scope& scope, const Output& input, int axis, DType output_type) {
  return ArgReduce(scope, "ArgMin", input, axis, output_type);
}

Output Cumsum(const Scope& scope, const Output& x, const Output& axis, bool exclusive,
              bool reverse) {
  return Scan(scope, "Cumsum", x, axis, exclusive, reverse);
}
Output Cumprod(const Scope& scope, const Output& x, const Output& axis, bool exclusive,
               bool reverse) {
  return Scan(scope, "Cumprod", x, axis, exclusive, reverse);
}

Output CumulativeLogsumexp(const Scope& scope, const Output& x, const Output& axis, bool exclusive,
                           bool reverse) {
  return Scan(scope, "CumulativeLogsumexp", x, axis, exclusive, reverse);
}

namespace ops::reduce {
namespace {

Status ReduceShape(ShapeContext& c) {
  if (c.input(1).known_rank() && c.input(1).rank() > 1) {
    return InvalidArgument("the axes must be a scalar or a vector, not of shape " +
                           c.input(1).ToString());
  }
  const PartialShape& input = c.input(0);
  const bool keep_dims = c.attr<bool>("keep_dims");
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  const auto axes = c.InputAsInts(1);
  if (!axes) {
    c.set_output(0, keep_dims ? PartialShape::UnknownOfRank(input.rank()) : PartialShape());
    return Status();
  }
  std::array<bool, kMaxRank> reduced{};
  for (int64_t axis : *axes) {
    MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, input.rank()));
    reduced[static_cast<size_t>(at)] = true;
  }
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i < input.rank(); ++i) {
    if (!reduced[static_cast<size_t>(i)]) {
      output.AddDim(input.dim(i));
    } else if (keep_dims) {
      output.AddDim(1);
    }
  }
  c.set_output(0, output);
  return Status();
}

Status ArgShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const PartialShape& input = c.input(0);
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (input.rank() == 0) return InvalidArgument("the input must have at least one dimension");
  const auto axis_value = c.InputAsInts(1);
  if (!axis_value) {
    c.set_output(0, PartialShape::UnknownOfRank(input.rank() - 1));
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_value->front(), input.rank()));
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i < input.rank(); ++i) {
    if (i != axis) output.AddDim(input.dim(i));
  }
  c.set_output(0, output);
  return Status();
}

Status ScanShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  if (const auto axis = c.InputAsInts(1); axis && c.input(0).known_rank()) {
    MG_RETURN_IF_ERROR(NormalizeAxis(axis->front(), c.input(0).rank()).status());
  }
  c.set_output(0, c.input(0));
  return Status();
}

Output InputShape(GradientContext& c) {
  const PartialShape shape = c.input(0).shape();
  if (shape.fully_known()) return IntsConst(c.scope(), shape.dims());
  return ShapeOf(c.scope(), c.input(0));
}

// `x` (the output or its gradient) with the reduced dimensions put back as 1.
Output WithKeptDims(GradientContext& c, const Output& x) {
  const Scope& s = c.scope();
  if (c.attrs().Get<bool>("keep_dims")) return x;
  const PartialShape shape = c.input(0).shape();
  const auto axes = ConstInts(c.input(1));
  if (axes && shape.known_rank()) {
    PartialShape kept = shape;
    for (int64_t axis : *axes)
      kept.set_dim(static_cast<int>(axis < 0 ? axis + shape.rank() : axis), 1);
    int unknown = 0;
    for (int64_t dim : kept.dims()) unknown += dim < 0 ? 1 : 0;
    if (unknown <= 1)
      return Reshape(s, x, IntsConst(s, kept.dims()));  // -1 stands for the one unknown
  }
  Output axes32 = Reshape(s, Cast(s, c.input(1), DT_INT32), IntsConst(s, {-1}));
  const Output rank = Rank(s, c.input(0));
  axes32 = FloorMod(s, Add(s, axes32, rank), rank);
  const Output all = Range(s, Const(s, 0), rank, Const(s, 1));
  const Output ones = Fill(s, ShapeOf(s, axes32), Const(s, 1));
  return Reshape(s, x, DynamicStitch(s, {all, axes32}, {ShapeOf(s, c.input(0)), ones}));
}

Status SumGradient(GradientContext& c) {
  c.set_grad(0, BroadcastTo(c.scope(), WithKeptDims(c, c.grad(0)), InputShape(c)));
  return Status();
}

Status MeanGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const DType dtype = c.grad(0).dtype();
  const PartialShape in = c.input(0).shape(), out = c.output(0).shape();
  Output factor;
  if (in.fully_known() && out.fully_known()) {
    factor = ScalarConst(s,
                         static_cast<double>(in.elements()) /
                             static_cast<double>(std::max<int64_t>(out.elements(), 1)),
                         dtype);
  } else {
    const Output elements = Size(s, c.input(0)), results = Size(s, c.output(0));
    factor = Cast(s, FloorDiv(s, elements, Maximum(s, results, Const(s, 1))), dtype);
  }
  c.set_grad(0, BroadcastTo(s, RealDiv(s, WithKeptDims(c, c.grad(0)), factor), InputShape(c)));
  return Status();
}

// The gradient is shared equally between all elements that equal the extreme.
Status ExtremeGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = WithKeptDims(c, c.output(0)), g = WithKeptDims(c, c.grad(0));
  const Output hits = Cast(s, Equal(s, y, c.input(0)), g.valid() ? g.dtype() : DT_FLOAT);
  const Output count = Sum(s, hits, c.input(1), /*keep_dims=*/true);
  c.set_grad(0, Mul(s, RealDiv(s, hits, count), g));
  return Status();
}

// A permutation that puts the reduced dimensions first, and its inverse.
struct Order {
  Output there, back;
};

Order ReducedFirst(GradientContext& c) {
  const Scope& s = c.scope();
  const PartialShape shape = c.input(0).shape();
  const auto axes = ConstInts(c.input(1));
  if (!axes || !shape.known_rank()) {
    const Output rank = Rank(s, c.input(0)), all = Range(s, Const(s, 0), rank, Const(s, 1));
    const Output given = FloorMod(s, Reshape(s, Cast(s, c.input(1), DT_INT32), {-1}), rank);
    const Output kept = ListDiff(s, all, given).out, reduced = ListDiff(s, all, kept).out;
    const Output there = Concat(s, {reduced, kept}, 0);
    return {there, InvertPermutation(s, there)};
  }
  std::vector<int64_t> order, inverse(static_cast<size_t>(shape.rank()));
  std::array<bool, kMaxRank> reduced{};
  for (int64_t axis : *axes)
    reduced[static_cast<size_t>(axis < 0 ? axis + shape.rank() : axis)] = true;
  for (bool wanted : {true, false}) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (reduced[static_cast<size_t>(i)] == wanted) order.push_back(i);
    }
  }
  for (size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return {IntsConst(s, order), IntsConst(s, inverse)};
}

// The gradient of element i is the product of all others: of those before it and those after it, so
// that zeros do no harm.
Status ProdGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Order order = ReducedFirst(c);
  const Output moved = Transpose(s, c.input(0), order.there);
  const Output moved_shape = ShapeOf(s, moved);
  const Output results = Size(s, c.output(0));
  const Output factors = FloorDiv(s, Size(s, c.input(0)), Maximum(s, results, Const(s, 1)));
  const Output table =
      Reshape(s, moved, OpBuilder(s, "Pack").Inputs(Outputs{factors, results}).BuildOutput());
  const Output zero = Const(s, 0);
  const Output others = Mul(s, Cumprod(s, table, zero, /*exclusive=*/true),
                            Cumprod(s, table, zero, /*exclusive=*/true, /*reverse=*/true));
  const Output back = Transpose(s, Reshape(s, others, moved_shape), order.back);
  c.set_grad(0, Mul(s, back, WithKeptDims(c, c.grad(0))));
  return Status();
}

Status CumsumGradient(GradientContext& c) {
  c.set_grad(0, Cumsum(c.scope(), c.grad(0), c.input(1), c.attrs().Get<bool>("exclusive"),
                       !c.attrs().Get<bool>("reverse")));
  return Status();
}

Status CumprodGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output sums = Cumsum(s, Mul(s, c.output(0), c.grad(0)), c.input(1),
                             c.attrs().Get<bool>("exclusive"), !c.attrs().Get<bool>("reverse"));
  c.set_grad(0, RealDiv(s, sums, c.input(0)));
  return Status();
}

// Element j gets the sum of g_i * exp(x_j - y_i) over the sums y_i that it is in: for the positive
// and the negative g_i in logarithms, so that nothing overflows.
Status CumulativeLogsumexpGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), g = c.grad(0);
  const Output none = ScalarConst(s, -std::numeric_limits<double>::infinity(), x.dtype()),
               zero = ScalarConst(s, 0, x.dtype());
  const auto of_sign = [&](const Output& part) {
    // The logarithm is not taken where the part is not positive.
    const Output taken = Greater(s, part, zero);
    const Output log = Select(s, taken, Log(s, part), none);
    const Output scaled = Select(s, taken, Sub(s, log, c.output(0)), none);
    const Output sums = CumulativeLogsumexp(s, scaled, c.input(1), c.attrs().Get<bool>("exclusive"),
                                            !c.attrs().Get<bool>("reverse"));
    return Exp(s, Add(s, sums, x));
  };
  c.set_grad(0, Sub(s, of_sign(g), of_sign(Neg(s, g))));
  return Status();
}

// x / (norm / g)
Status EuclideanNormGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output norm = WithKeptDims(c, c.output(0)), g = WithKeptDims(c, c.grad(0));
  c.set_grad(0, RealDiv(s, c.input(0), RealDiv(s, norm, g)));
  return Status();
}

OpDef Reduction(const char* name, GradientFn gradient) {
  return OpDef(name)
      .Input("input: T")
      .Input("reduction_indices: Tidx")
      .Output("output: T")
      .Attr("keep_dims: bool = false")
      .Attr("T: " MG_OP_NUMBER_TYPES)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Shape(ReduceShape)
      .Gradient(gradient);
}

OpDef LogicalReduction(const char* name) {
  return OpDef(name)
      .Input("input: bool")
      .Input("reduction_indices: Tidx")
      .Output("output: bool")
      .Attr("keep_dims: bool = false")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Shape(ReduceShape)
      .NoGradient();
}

OpDef ArgReduction(const char* name) {
  return OpDef(name)
      .Input("input: T")
      .Input("dimension: Tidx")
      .Output("output: output_type")
      .Attr(
          "T: {float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, "
          "complex128, half, "
          "uint32, uint64, bool}")
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Attr("output_type: {int32, int64} = DT_INT64")
      .Shape(ArgShape)
      .NoGradient();
}

OpDef ScanDef(const char* name, GradientFn gradient, const char* types = MG_OP_NUMBER_TYPES) {
  return OpDef(name)
      .Input("x: T")
      .Input("axis: Tidx")
      .Output("out: T")
      .Attr("exclusive: bool = false")
      .Attr("reverse: bool = false")
      .Attr(std::string("T: ") + types)
      .Attr("Tidx: {int32, int64} = DT_INT32")
      .Shape(ScanShape)
      .Gradient(gradient);
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(Reduction("Sum", SumGradient));
  registry->Add(Reduction("Mean", MeanGradient));
  registry->Add(Reduction("Max", ExtremeGradient));
  registry->Add(Reduction("Min", ExtremeGradient));
  registry->Add(Reduction("Prod", ProdGradient));
  registry->Add(Reduction("EuclideanNorm", EuclideanNormGradient));
  registry->Add(LogicalReduction("All"));
  registry->Add(LogicalReduction("Any"));
  registry->Add(ArgReduction("ArgMax"));
  registry->Add(ArgReduction("ArgMin"));
  registry->Add(ScanDef("Cumsum", CumsumGradient));
  registry->Add(ScanDef("Cumprod", CumprodGradient));
  registry->Add(ScanDef("CumulativeLogsumexp", CumulativeLogsumexpGradient, MG_OP_FLOAT_TYPES));
}

}  // namespace ops::reduce
}  // namespace monograph
