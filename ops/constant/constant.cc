// Functions, shape functions, gradients and definitions. The functions for constants (ScalarConst,
// IntsConst) round to the requested type while the graph is built. ConstValue and ConstInts go the
// other way: they let shape functions and gradients see the values that are known before a step
// runs.
#include "ops/constant/constant.h"

#include <cmath>
#include <limits>

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/reduce/reduce.h"
#include "ops/types.h"

namespace monograph {

Output Const(const Scope& scope, Tensor value) {
  const DType dtype = value.dtype();
  return OpBuilder(scope, "Const")
      .Attr("value", std::move(value))
      .Attr("dtype", dtype)
      .BuildOutput();
}

Output Const(const Scope& scope, std::string_view text) {
  return Const(scope, Tensor::String(std::string(text)));
}

Output ScalarConst(const Scope& scope, double value, DType dtype) {
  switch (dtype) {
    case DT_FLOAT:
      return Const(scope, static_cast<float>(value));
    case DT_DOUBLE:
      return Const(scope, value);
    case DT_HALF:
      return Const(scope, Tensor::Scalar(half(static_cast<float>(value))));
    case DT_BFLOAT16:
      return Const(scope, Tensor::Scalar(bfloat16(static_cast<float>(value))));
    case DT_INT32:
      return Const(scope, static_cast<int32_t>(value));
    case DT_INT64:
      return Const(scope, static_cast<int64_t>(value));
    case DT_INT16:
      return Const(scope, static_cast<int16_t>(value));
    case DT_INT8:
      return Const(scope, static_cast<int8_t>(value));
    case DT_UINT16:
      return Const(scope, static_cast<uint16_t>(value));
    case DT_UINT8:
      return Const(scope, static_cast<uint8_t>(value));
    case DT_UINT32:
      return Const(scope, static_cast<uint32_t>(value));
    case DT_UINT64:
      return Const(scope, static_cast<uint64_t>(value));
    case DT_BOOL:
      return Const(scope, value != 0);
    default:
      scope.Fail(InvalidArgument("no numeric constant has type " + std::string(DTypeName(dtype))));
      return {};
  }
}

Output IntsConst(const Scope& scope, std::span<const int64_t> values) {
  std::vector<int32_t> ints(values.begin(), values.end());
  return Const(scope, Tensor::FromValues<int32_t>(Shape{static_cast<int64_t>(ints.size())}, ints));
}

const Tensor* ConstValue(const Output& output) {
  Output source = output;
  while (source.valid() && source.graph->is(source.node(), "Identity"))
    source = Operation(source).input(0);
  if (!source.valid() || !source.graph->is(source.node(), "Const")) return nullptr;
  return std::get_if<Tensor>(source.graph->attrs(source.node()).Find("value"));
}

std::optional<std::vector<int64_t>> ConstInts(const Output& output) {
  const Tensor* value = ConstValue(output);
  if (value == nullptr || value->shape().rank() > 1) return std::nullopt;
  if (value->dtype() == DT_INT32) {
    const auto ints = value->values<int32_t>();
    return std::vector<int64_t>(ints.begin(), ints.end());
  }
  if (value->dtype() != DT_INT64) return std::nullopt;
  const auto ints = value->values<int64_t>();
  return std::vector<int64_t>(ints.begin(), ints.end());
}

Output Placeholder(const Scope& scope, DType dtype, const PartialShape& shape) {
  return OpBuilder(scope, "Placeholder").Attr("dtype", dtype).Attr("shape", shape).BuildOutput();
}

Output PlaceholderWithDefault(const Scope& scope, const Output& input, const PartialShape& shape) {
  return OpBuilder(scope, "PlaceholderWithDefault").Input(input).Attr("shape", shape).BuildOutput();
}

Output Fill(const Scope& scope, const Output& dims, const Output& value) {
  return OpBuilder(scope, "Fill").Input(dims).Input(value).BuildOutput();
}

Output ZerosLike(const Scope& scope, const Output& x) {
  return OpBuilder(scope, "ZerosLike").Input(x).BuildOutput();
}
Output OnesLike(const Scope& scope, const Output& x) {
  return OpBuilder(scope, "OnesLike").Input(x).BuildOutput();
}

Output Zeros(const Scope& scope, const Shape& shape, DType dtype) {
  const Scope inner = scope.SubScope("zeros");
  return Fill(inner, IntsConst(inner.WithOpName("dims"), shape.dims()),
              ScalarConst(inner, 0, dtype));
}

Output Ones(const Scope& scope, const Shape& shape, DType dtype) {
  const Scope inner = scope.SubScope("ones");
  return Fill(inner, IntsConst(inner.WithOpName("dims"), shape.dims()),
              ScalarConst(inner, 1, dtype));
}

Output Range(const Scope& scope, const Output& start, const Output& limit, const Output& delta) {
  return OpBuilder(scope, "Range").Input(start).Input(limit).Input(delta).BuildOutput();
}

namespace ops::constant {
namespace {

Status ConstShape(ShapeContext& c) {
  const auto& value = c.attr<Tensor>("value");
  if (value.dtype() != c.attr<DType>("dtype")) {
    return InvalidArgument("attribute dtype is " + std::string(DTypeName(c.attr<DType>("dtype"))) +
                           " but the value is " + std::string(DTypeName(value.dtype())));
  }
  c.set_output(0, value.shape());
  return Status();
}

Status PlaceholderShape(ShapeContext& c) {
  c.set_output(0, c.attr<PartialShape>("shape"));
  return Status();
}

Status PlaceholderWithDefaultShape(ShapeContext& c) {
  const auto& shape = c.attr<PartialShape>("shape");
  MG_RETURN_IF_ERROR(PartialShape::Merge(c.input(0), shape).status());
  c.set_output(
      0, shape);  // what is fed may differ from the default where the attribute leaves it open
  return Status();
}

Status FillShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.set_output(0, shape);
  return Status();
}

double ScalarAsDouble(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case DT_FLOAT:
      return static_cast<double>(tensor.scalar<float>());
    case DT_DOUBLE:
      return tensor.scalar<double>();
    default:
      return std::nan("");
  }
}

Status RangeShape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, PartialShape{-1});
  const Tensor* start = c.input_value(0);
  const Tensor* limit = c.input_value(1);
  const Tensor* delta = c.input_value(2);
  if (start == nullptr || limit == nullptr || delta == nullptr) return Status();
  if (c.input_dtype(0) == DT_INT32 || c.input_dtype(0) == DT_INT64) {
    const auto int_of = [](const Tensor& tensor) {
      return tensor.dtype() == DT_INT32 ? int64_t{tensor.scalar<int32_t>()}
                                        : tensor.scalar<int64_t>();
    };
    const int64_t from = int_of(*start), to = int_of(*limit), by = int_of(*delta);
    if (by == 0) return InvalidArgument("delta must not be 0");
    if ((by > 0 && from > to) || (by < 0 && from < to)) {
      return InvalidArgument("a range from " + std::to_string(from) + " to " + std::to_string(to) +
                             " by " + std::to_string(by) + " never gets there");
    }
    const auto first = static_cast<uint64_t>(from), last = static_cast<uint64_t>(to);
    const uint64_t distance = by > 0 ? last - first : first - last,
                   step = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
    const uint64_t size = distance / step + (distance % step != 0 ? 1 : 0);
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return InvalidArgument("the range has too many elements");
    c.set_output(0, PartialShape{static_cast<int64_t>(size)});
  } else if (c.input_dtype(0) == DT_FLOAT || c.input_dtype(0) == DT_DOUBLE) {
    const double size =
        std::ceil((ScalarAsDouble(*limit) - ScalarAsDouble(*start)) / ScalarAsDouble(*delta));
    if (!(size >= 0))
      return InvalidArgument("delta must not be 0 and must lead from start to limit");
    if (!(size < 1e15)) return InvalidArgument("the range has too many elements");
    c.set_output(0, PartialShape{static_cast<int64_t>(size)});
  }
  return Status();
}

Status FillGradient(GradientContext& c) {
  c.set_grad(1, ReduceSum(c.scope(), c.grad(0)));
  return Status();
}

Status PassGradient(GradientContext& c) {
  c.set_grad(0, c.grad(0));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Const")
                    .Output("output: dtype")
                    .Attr("value: tensor")
                    .Attr("dtype: type")
                    .Shape(ConstShape)
                    .NoGradient());
  registry->AddOtherName("HostConst", "Const");
  registry->Add(OpDef("Placeholder")
                    .Output("output: dtype")
                    .Attr("dtype: type")
                    .Attr("shape: shape = { unknown_rank: true }")
                    .Shape(PlaceholderShape)
                    .NoGradient());
  registry->AddOtherName("PlaceholderV2", "Placeholder");
  registry->Add(OpDef("PlaceholderWithDefault")
                    .Input("input: dtype")
                    .Output("output: dtype")
                    .Attr("dtype: type")
                    .Attr("shape: shape")
                    .Shape(PlaceholderWithDefaultShape)
                    .Gradient(PassGradient));
  registry->Add(OpDef("Fill")
                    .Input("dims: index_type")
                    .Input("value: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("index_type: {int32, int64} = DT_INT32")
                    .Shape(FillShape)
                    .Gradient(FillGradient));
  registry->Add(OpDef("ZerosLike")
                    .Input("x: T")
                    .Output("y: T")
                    .Attr("T: type")
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("OnesLike")
                    .Input("x: T")
                    .Output("y: T")
                    .Attr("T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, "
                          "uint32, int64, "
                          "uint64, complex64, complex128, bool}")
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(OpDef("Range")
                    .Input("start: Tidx")
                    .Input("limit: Tidx")
                    .Input("delta: Tidx")
                    .Output("output: Tidx")
                    .Attr("Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, "
                          "uint16, uint32} = DT_INT32")
                    .Shape(RangeShape)
                    .NoGradient());
}

}  // namespace ops::constant
}  // namespace monograph
