#include "tests/graph/test_ops.h"

#include <algorithm>

namespace monograph::testing {
namespace {

Status ConstShape(ShapeContext& c) {
  const auto& value = c.attr<Tensor>("value");
  if (value.dtype() != c.attr<DType>("dtype")) return InvalidArgument("value is not of type dtype");
  c.set_output(0, value.shape());
  return Status();
}

Status PlaceholderShape(ShapeContext& c) {
  c.set_output(0, c.attr<PartialShape>("shape"));
  return Status();
}

Status MatMulShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape a, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(1, 2));
  const bool ta = c.attr<bool>("transpose_a"), tb = c.attr<bool>("transpose_b");
  const int64_t inner_a = a.dim(ta ? 0 : 1), inner_b = b.dim(tb ? 1 : 0);
  if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b) {
    return InvalidArgument("inner dimensions " + std::to_string(inner_a) + " and " +
                           std::to_string(inner_b) + " differ");
  }
  c.set_output(0, {a.dim(ta ? 1 : 0), b.dim(tb ? 0 : 1)});
  return Status();
}

Status ReshapeShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(1));
  c.set_output(0, shape);
  return Status();
}

Status ShapeOfShape(ShapeContext& c) {
  c.set_output(0, {c.input(0).known_rank() ? c.input(0).rank() : -1});
  return Status();
}

Status PackShape(ShapeContext& c) {
  c.set_output(0, c.input(0).rank() == 0 ? PartialShape{c.num_inputs()} : PartialShape());
  return Status();
}

const char* const kNumber = "T: {float, double, int32, int64, half, bfloat16}";

// Of vectors one behind the other.
Status VectorsShape(ShapeContext& c) {
  int64_t length = 0;
  for (int i = 0; i + 1 < c.num_inputs(); ++i) {
    MG_ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(i, 1));
    length += vector.dim(0);
  }
  c.set_output(0, PartialShape{length});
  return Status();
}

// Of a vector of known length, from constants.
Status SliceShape(ShapeContext& c) {
  const auto begin = c.InputAsInts(1), end = c.InputAsInts(2), strides = c.InputAsInts(3);
  if (c.attr<int64_t>("shrink_axis_mask") == 1) {
    c.set_output(0, PartialShape::Scalar());
    return Status();
  }
  const int64_t n = c.input(0).dim(0), step = strides->front();
  const auto place = [&](int64_t i, const char* mask, int64_t all) {
    if (c.attr<int64_t>(mask) == 1) return all;
    return std::clamp<int64_t>(i < 0 ? i + n : i, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
  };
  const int64_t from = place(begin->front(), "begin_mask", step > 0 ? 0 : n - 1);
  const int64_t to = place(end->front(), "end_mask", step > 0 ? n : -1);
  c.set_output(0, PartialShape{(to - from + step + (step > 0 ? -1 : 1)) / step});
  return Status();
}

}  // namespace

void AddTestOps(OpRegistry* registry) {
  registry->Add(OpDef("Const")
                    .Output("output: dtype")
                    .Attr("value: tensor")
                    .Attr("dtype: type")
                    .Shape(ConstShape));
  registry->Add(OpDef("Placeholder")
                    .Output("output: dtype")
                    .Attr("dtype: type")
                    .Attr("shape: shape = { unknown_rank: true }")
                    .Shape(PlaceholderShape));
  registry->Add(OpDef("Identity")
                    .Input("input: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Shape(UnchangedShape));
  registry->Add(OpDef("NoOp").Shape(NoOutputs));
  registry->Add(OpDef("Act").Stateful().Shape(NoOutputs));
  registry->Add(OpDef("MatMul")
                    .Input("a: T")
                    .Input("b: T")
                    .Output("product: T")
                    .Attr("transpose_a: bool = false")
                    .Attr("transpose_b: bool = false")
                    .Attr("T: {bfloat16, half, float, double, int32}")
                    .Shape(MatMulShape));
  registry->Add(
      OpDef("Mul").Input("x: T").Input("y: T").Output("z: T").Attr(kNumber).Commutative().Shape(
          BroadcastShape));
  registry->Add(
      OpDef("Add").Input("x: T").Input("y: T").Output("z: T").Attr(kNumber).Commutative().Shape(
          BroadcastShape));
  registry->Add(
      OpDef("Sub").Input("x: T").Input("y: T").Output("z: T").Attr(kNumber).Shape(BroadcastShape));
  registry->Add(OpDef("Relu")
                    .Input("features: T")
                    .Output("activations: T")
                    .Attr(kNumber)
                    .Shape(UnchangedShape));
  registry->Add(OpDef("AddN")
                    .Input("inputs: N * T")
                    .Output("sum: T")
                    .Attr("N: int >= 1")
                    .Attr("T: type")
                    .Shape(MergeAllShape));
  registry->Add(
      OpDef("IdentityN").Input("input: T").Output("output: T").Attr("T: list(type) >= 1"));
  registry->Add(OpDef("Split")
                    .Input("split_dim: int32")
                    .Input("value: T")
                    .Output("output: num_split * T")
                    .Attr("num_split: int >= 1")
                    .Attr("T: type"));
  registry->Add(OpDef("Conv2D")
                    .Input("input: T")
                    .Input("filter: T")
                    .Output("output: T")
                    .Attr("T: {half, float}")
                    .Attr("strides: list(int)")
                    .Attr("padding: {'SAME', 'VALID'}")
                    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
                    .Attr("dilations: list(int) = [1, 1, 1, 1]")
                    .Attr("explicit_paddings: list(int) = []"));
  registry->Add(OpDef("Reshape")
                    .Input("tensor: T")
                    .Input("shape: Tshape")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tshape: {int32, int64} = DT_INT32")
                    .Shape(ReshapeShape));
  registry->Add(OpDef("Shape")
                    .Input("input: T")
                    .Output("output: out_type")
                    .Attr("T: type")
                    .Attr("out_type: {int32, int64} = DT_INT32")
                    .NoGradient()
                    .Shape(ShapeOfShape));
  registry->Add(OpDef("Pack")
                    .Input("values: N * T")
                    .Output("output: T")
                    .Attr("N: int >= 1")
                    .Attr("T: type")
                    .Attr("axis: int = 0")
                    .Shape(PackShape));
  registry->Add(OpDef("ConcatV2")
                    .Input("values: N * T")
                    .Input("axis: Tidx")
                    .Output("output: T")
                    .Attr("N: int >= 2")
                    .Attr("T: type")
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Shape(VectorsShape));
  registry->Add(OpDef("StridedSlice")
                    .Input("input: T")
                    .Input("begin: Index")
                    .Input("end: Index")
                    .Input("strides: Index")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Index: {int32, int64}")
                    .Attr("begin_mask: int = 0")
                    .Attr("end_mask: int = 0")
                    .Attr("ellipsis_mask: int = 0")
                    .Attr("new_axis_mask: int = 0")
                    .Attr("shrink_axis_mask: int = 0")
                    .Shape(SliceShape));
  registry->Add(OpDef("VarHandleOp")
                    .Output("resource: resource")
                    .Attr("container: string = ''")
                    .Attr("shared_name: string = ''")
                    .Attr("dtype: type")
                    .Attr("shape: shape")
                    .Stateful()
                    .Shape(ScalarShape));
  registry->Add(OpDef("ReadVariableOp")
                    .Input("resource: resource")
                    .Output("value: dtype")
                    .Attr("dtype: type")
                    .Stateful());
  registry->Add(OpDef("AssignVariableOp")
                    .Input("resource: resource")
                    .Input("value: dtype")
                    .Attr("dtype: type")
                    .Stateful());
  registry->Add(OpDef("RandomUniform")
                    .Input("shape: T")
                    .Output("output: dtype")
                    .Attr("seed: int = 0")
                    .Attr("seed2: int = 0")
                    .Attr("dtype: {half, float}")
                    .Attr("T: {int32, int64}")
                    .Stateful());
}

const OpRegistry& TestRegistry() {
  static const OpRegistry* const kRegistry = [] {
    auto* registry = new OpRegistry();
    AddTestOps(registry);
    return registry;
  }();
  return *kRegistry;
}

Output Placeholder(const Scope& scope, DType dtype, const PartialShape& shape) {
  return OpBuilder(scope, "Placeholder").Attr("dtype", dtype).Attr("shape", shape).BuildOutput();
}

Output Const(const Scope& scope, Tensor value) {
  const DType dtype = value.dtype();
  return OpBuilder(scope, "Const")
      .Attr("value", std::move(value))
      .Attr("dtype", dtype)
      .BuildOutput();
}

Output Binary(const Scope& scope, const char* op, const Output& a, const Output& b) {
  return OpBuilder(scope, op).Input(a).Input(b).BuildOutput();
}

Output Unary(const Scope& scope, const char* op, const Output& a) {
  return OpBuilder(scope, op).Input(a).BuildOutput();
}

}  // namespace monograph::testing
