// Functions, shape functions, gradients and definitions of ops that put elements in order, or find
// them in it.
#include "ops/order/order.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/scatter_nd/scatter_nd.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/types.h"

namespace monograph {
namespace {

Output Bound(const Scope& scope, const char* op, const Output& sorted_inputs, const Output& values,
             DType out_type) {
  return OpBuilder(scope, op)
      .Input(sorted_inputs)
      .Input(values)
      .Attr("out_type", AttrValue(out_type))
      .BuildOutput();
}

}  // namespace

TopKResult TopK(const Scope& scope, const Output& input, const Output& k, bool sorted) {
  const Operation node =
      OpBuilder(scope, "TopKV2").Input(input).Input(k).Attr("sorted", AttrValue(sorted)).Build();
  return {node.output(0), node.output(1)};
}

Output NthElement(const Scope& scope, const Output& input, const Output& n, bool reverse) {
  return OpBuilder(scope, "NthElement")
      .Input(input)
      .Input(n)
      .Attr("reverse", AttrValue(reverse))
      .BuildOutput();
}

Output LowerBound(const Scope& scope, const Output& sorted_inputs, const Output& values,
                  DType out_type) {
  return Bound(scope, "LowerBound", sorted_inputs, values, out_type);
}
Output UpperBound(const Scope& scope, const Output& sorted_inputs, const Output& values,
                  DType out_type) {
  return Bound(scope, "UpperBound", sorted_inputs, values, out_type);
}

Output Bucketize(const Scope& scope, const Output& input, const std::vector<float>& boundaries) {
  return OpBuilder(scope, "Bucketize")
      .Input(input)
      .Attr("boundaries", AttrValue(boundaries))
      .BuildOutput();
}

Output Bincount(const Scope& scope, const Output& arr, const Output& size, const Output& weights) {
  return OpBuilder(scope, "Bincount").Input(arr).Input(size).Input(weights).BuildOutput();
}

namespace ops::order {
namespace {

// Input 0 with `last` in place of its last dimension, or without it.
Result<PartialShape> RowsShape(ShapeContext& c, int64_t last, bool keep) {
  const PartialShape& input = c.input(0);
  if (!input.known_rank()) return PartialShape();
  if (input.rank() < 1) return InvalidArgument("input must have at least one dimension");
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i + 1 < input.rank(); ++i) output.AddDim(input.dim(i));
  if (keep) output.AddDim(last);
  const int64_t columns = input.dim(input.rank() - 1);
  if (columns >= 0 && (keep ? last > columns : last >= columns)) {
    return InvalidArgument("input must have " + std::string(keep ? "at least k" : "more than n") +
                           " columns: it has shape " + input.ToString() + ", and " +
                           std::string(keep ? "k" : "n") + " is " + std::to_string(last));
  }
  return output;
}

Status TopKShape(ShapeContext& c) {
  int64_t k = -1;
  if (c.num_inputs() == 1) {
    k = c.attr<int64_t>("k");
  } else {
    MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
    if (const auto value = c.InputAsInts(1)) {
      k = value->front();
      if (k < 0) return InvalidArgument("k must not be negative");
    }
  }
  MG_ASSIGN_OR_RETURN(const PartialShape output, RowsShape(c, k, true));
  c.set_output(0, output);
  c.set_output(1, output);
  return Status();
}

Status NthElementShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const auto n = c.InputAsInts(1);
  if (n && n->front() < 0) return InvalidArgument("n must not be negative");
  MG_ASSIGN_OR_RETURN(const PartialShape output, RowsShape(c, n ? n->front() : -1, false));
  c.set_output(0, output);
  return Status();
}

Status BoundShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape sorted, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(PartialShape values, c.WithRank(1, 2));
  MG_ASSIGN_OR_RETURN(const int64_t rows, MergeDim(sorted.dim(0), values.dim(0), "rows"));
  values.set_dim(0, rows);
  c.set_output(0, values);
  return Status();
}

Status CountsShape(ShapeContext& c, int input) {
  MG_RETURN_IF_ERROR(c.WithRank(input, 0).status());
  const auto size = c.InputAsInts(input);
  if (size && size->front() < 0) return InvalidArgument("size must not be negative");
  c.set_output(0, PartialShape{size ? size->front() : -1});
  return Status();
}
Status BincountShape(ShapeContext& c) { return CountsShape(c, 1); }
Status HistogramShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape range, c.WithRank(1, 1));
  if (range.dim(0) >= 0 && range.dim(0) != 2)
    return InvalidArgument("value_range must have 2 elements, not shape " + range.ToString());
  MG_RETURN_IF_ERROR(CountsShape(c, 2));
  if (const auto bins = c.InputAsInts(2); bins && bins->front() == 0)
    return InvalidArgument("nbins must be positive");
  return Status();
}

// The gradient of each value goes to the element that it was: rows * columns places, one after the
// other.
Status TopKGradient(GradientContext& c) {
  const Scope& s = c.scope();
  if (!c.grad(0).valid()) return Status();
  const Output shape = ShapeOf(s, c.input(0));
  const Output columns = Row(s, shape, -1), k = Row(s, ShapeOf(s, c.output(1)), -1);
  const Output chosen = Reshape(s, c.output(1), Pack(s, {Const(s, -1), k}));
  const Output rows = Row(s, ShapeOf(s, chosen), 0);
  const Output starts = Mul(s, Range(s, Const(s, 0), rows, Const(s, 1)), columns);
  const Output places = Reshape(s, Add(s, chosen, ExpandDims(s, starts, -1)), {-1, 1});
  const Output all = Reshape(s, Mul(s, rows, columns), {1});
  const Output flat = ScatterNd(s, places, Reshape(s, c.grad(0), {-1}), all);
  c.set_grad(0, Reshape(s, flat, shape));
  return Status();
}

// Shared among equal elements.
Status NthElementGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0);
  const Output chosen = Cast(s, Equal(s, x, ExpandDims(s, c.output(0), -1)), x.dtype());
  const Output count = Sum(s, chosen, {-1}, true);
  c.set_grad(0, RealDiv(s, Mul(s, chosen, ExpandDims(s, c.grad(0), -1)), count));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Bucketize")
                    .Input("input: T")
                    .Output("output: int32")
                    .Attr("T: {int32, int64, float, double}")
                    .Attr("boundaries: list(float)")
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("TopK")
                    .Input("input: T")
                    .Output("values: T")
                    .Output("indices: int32")
                    .Attr("k: int >= 0")
                    .Attr("sorted: bool = true")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .Shape(TopKShape)
                    .Gradient(TopKGradient));
  registry->Add(OpDef("TopKV2")
                    .Input("input: T")
                    .Input("k: Tk")
                    .Output("values: T")
                    .Output("indices: index_type")
                    .Attr("sorted: bool = true")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .Attr("Tk: {int32, int64} = DT_INT32")
                    .Attr("index_type: {int32, int64} = DT_INT32")
                    .Shape(TopKShape)
                    .Gradient(TopKGradient));
  registry->Add(OpDef("NthElement")
                    .Input("input: T")
                    .Input("n: int32")
                    .Output("values: T")
                    .Attr("reverse: bool = false")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .Shape(NthElementShape)
                    .Gradient(NthElementGradient));
  for (const char* name : {"LowerBound", "UpperBound"}) {
    registry->Add(OpDef(name)
                      .Input("sorted_inputs: T")
                      .Input("values: T")
                      .Output("output: out_type")
                      .Attr("T: type")
                      .Attr("out_type: {int32, int64} = DT_INT32")
                      .Shape(BoundShape)
                      .NoGradient());
  }
  registry->Add(OpDef("Bincount")
                    .Input("arr: int32")
                    .Input("size: int32")
                    .Input("weights: T")
                    .Output("bins: T")
                    .Attr("T: {int32, int64, float, double}")
                    .Shape(BincountShape)
                    .NoGradient());
  registry->Add(OpDef("HistogramFixedWidth")
                    .Input("values: T")
                    .Input("value_range: T")
                    .Input("nbins: int32")
                    .Output("out: dtype")
                    .Attr("T: {int32, int64, float, double}")
                    .Attr("dtype: {int32, int64} = DT_INT32")
                    .Shape(HistogramShape)
                    .NoGradient());
}

}  // namespace ops::order
}  // namespace monograph
