// Functions, shape functions and definitions of elementwise ops; gradients.cc has their gradients.
// Most ops differ in name, types and gradient alone, so that a definition is one line of Define,
// made by Binary, Unary or one of their kin. The lists of types are TensorFlow's, and so longer
// than the lists of types that have kernels.
#include "ops/elementwise/elementwise.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/elementwise/functions.h"
#include "ops/elementwise/gradients.h"
#include "ops/types.h"

namespace monograph {

#define MG_BINARY(function, op)                                           \
  Output function(const Scope& scope, const Output& x, const Output& y) { \
    return OpBuilder(scope, op).Input(x).Input(y).BuildOutput();          \
  }
MG_BINARY(Add, "AddV2")
MG_BINARY(Sub, "Sub")
MG_BINARY(Mul, "Mul")
MG_BINARY(Div, "Div")
MG_BINARY(RealDiv, "RealDiv")
MG_BINARY(FloorDiv, "FloorDiv")
MG_BINARY(FloorMod, "FloorMod")
MG_BINARY(DivNoNan, "DivNoNan")
MG_BINARY(Maximum, "Maximum")
MG_BINARY(Minimum, "Minimum")
MG_BINARY(Pow, "Pow")
MG_BINARY(SquaredDifference, "SquaredDifference")
MG_BINARY(SigmoidGrad, "SigmoidGrad")
MG_BINARY(TanhGrad, "TanhGrad")
MG_BINARY(SqrtGrad, "SqrtGrad")
MG_BINARY(RsqrtGrad, "RsqrtGrad")
MG_BINARY(ReciprocalGrad, "ReciprocalGrad")
MG_BINARY(Equal, "Equal")
MG_BINARY(NotEqual, "NotEqual")
MG_BINARY(Less, "Less")
MG_BINARY(LessEqual, "LessEqual")
MG_BINARY(Greater, "Greater")
MG_BINARY(GreaterEqual, "GreaterEqual")
MG_BINARY(LogicalAnd, "LogicalAnd")
MG_BINARY(LogicalOr, "LogicalOr")
#undef MG_BINARY

#define MG_UNARY(function)                                     \
  Output function(const Scope& scope, const Output& x) {       \
    return OpBuilder(scope, #function).Input(x).BuildOutput(); \
  }
MG_UNARY(Neg)
MG_UNARY(Exp)
MG_UNARY(Log)
MG_UNARY(Log1p)
MG_UNARY(Sqrt)
MG_UNARY(Rsqrt)
MG_UNARY(Square)
MG_UNARY(Abs)
MG_UNARY(Sign)
MG_UNARY(Reciprocal)
MG_UNARY(Sigmoid)
MG_UNARY(Tanh)
MG_UNARY(Sin)
MG_UNARY(Cos)
MG_UNARY(Floor)
MG_UNARY(Ceil)
MG_UNARY(LogicalNot)
MG_UNARY(IsNan)
MG_UNARY(IsInf)
MG_UNARY(IsFinite)
#undef MG_UNARY

Output Round(const Scope& scope, const Output& x) {
  return OpBuilder(scope, "Round").Input(x).BuildOutput();
}

Output AddN(const Scope& scope, const Outputs& inputs) {
  return OpBuilder(scope, "AddN").Inputs(inputs).BuildOutput();
}

namespace ops::elementwise {

OpDef Binary(const char* name, const char* types, GradientFn gradient) {
  OpDef def(name);
  def.Input("x: T")
      .Input("y: T")
      .Output("z: T")
      .Attr(std::string("T: ") + types)
      .Shape(BroadcastShape);
  gradient != nullptr ? def.Gradient(gradient) : def.NoGradient();
  return def;
}

OpDef Unary(const char* name, const char* types, GradientFn gradient) {
  OpDef def(name);
  def.Input("x: T").Output("y: T").Attr(std::string("T: ") + types).Shape(UnchangedShape);
  gradient != nullptr ? def.Gradient(gradient) : def.NoGradient();
  return def;
}

namespace {

#define MG_OP_ALL_NUMBERS                                                                      \
  "{bfloat16, half, float, double, uint8, int8, uint16, int16, uint32, int32, uint64, int64, " \
  "complex64, complex128}"

// Equal and NotEqual with incompatible_shape_error = false: operands that do not broadcast are
// different, and the result is a scalar.
Status EqualityShape(ShapeContext& c) {
  const auto shape = BroadcastShapes(c.input(0), c.input(1));
  if (!shape.ok() && !c.attr<bool>("incompatible_shape_error")) {
    c.set_output(0, PartialShape::Scalar());
    return Status();
  }
  if (!c.attr<bool>("incompatible_shape_error") &&
      !(c.input(0).fully_known() && c.input(1).fully_known())) {
    c.set_output(0, PartialShape());
    return Status();
  }
  MG_RETURN_IF_ERROR(shape.status());
  c.set_output(0, *shape);
  return Status();
}

OpDef UnaryGrad(const char* name, GradientFn gradient) {
  return OpDef(name)
      .Input("y: T")
      .Input("dy: T")
      .Output("z: T")
      .Attr("T: " MG_OP_COMPLEX_FLOAT_TYPES)
      .Shape(MergeAllShape)
      .Gradient(gradient);
}

OpDef Comparison(const char* name) {
  return OpDef(name)
      .Input("x: T")
      .Input("y: T")
      .Output("z: bool")
      .Attr("T: " MG_OP_REAL_TYPES)
      .Shape(BroadcastShape)
      .NoGradient();
}

OpDef Equality(const char* name) {
  return OpDef(name)
      .Input("x: T")
      .Input("y: T")
      .Output("z: bool")
      .Attr("T: type")
      .Attr("incompatible_shape_error: bool = true")
      .Commutative()
      .Shape(EqualityShape)
      .NoGradient();
}

OpDef Logical(const char* name) {
  return OpDef(name)
      .Input("x: bool")
      .Input("y: bool")
      .Output("z: bool")
      .Commutative()
      .Shape(BroadcastShape)
      .NoGradient();
}

Status ChainShape(ShapeContext& c) {
  PartialShape shape = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    MG_ASSIGN_OR_RETURN(shape, BroadcastShapes(shape, c.input(i)));
  }
  c.set_output(0, shape);
  return Status();
}

OpDef FloatTest(const char* name) {
  return OpDef(name)
      .Input("x: T")
      .Output("y: bool")
      .Attr("T: " MG_OP_FLOAT_TYPES)
      .Shape(UnchangedShape)
      .NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(Binary("AddV2", MG_OP_ALL_NUMBERS, AddGradient).Commutative());
  registry->Add(Binary(
      "Add",
      "{bfloat16, half, float, double, uint8, int8, uint16, int16, uint32, int32, uint64, int64, "
      "complex64, complex128, string}",
      AddGradient));
  registry->Add(Binary("Sub", MG_OP_ALL_NUMBERS, SubGradient));
  registry->Add(Binary("Mul", MG_OP_ALL_NUMBERS, MulGradient).Commutative());
  registry->Add(Binary("Div", MG_OP_ALL_NUMBERS, DivGradient));
  registry->Add(Binary("RealDiv", MG_OP_ALL_NUMBERS, DivGradient));
  registry->Add(Binary("FloorDiv", MG_OP_ALL_NUMBERS, nullptr));
  registry->Add(Binary("FloorMod", MG_OP_REAL_TYPES, FloorModGradient));
  registry->Add(Binary("DivNoNan", MG_OP_COMPLEX_FLOAT_TYPES, DivNoNanGradient));
  registry->Add(Binary("Maximum", MG_OP_REAL_TYPES, MaximumGradient));
  registry->Add(Binary("Minimum", MG_OP_REAL_TYPES, MinimumGradient));
  registry->Add(Binary(
      "Pow",
      "{bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
      "complex64, complex128}",
      PowGradient));
  registry->Add(Binary("SquaredDifference",
                       "{bfloat16, half, float, double, int32, int64, complex64, complex128}",
                       SquaredDifferenceGradient)
                    .Commutative());
  registry->Add(
      OpDef("AddN")
          .Input("inputs: N * T")
          .Output("sum: T")
          .Attr("N: int >= 1")
          .Attr("T: {float, double, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, "
                "complex128, half, uint32, uint64, variant}")
          .Shape(MergeAllShape)
          .Gradient(AddNGradient));
  registry->Add(registry->Find("AddN")->OtherName("AccumulateNV2").Attr("shape: shape"));

  registry->Add(Unary(
      "Neg", "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
      NegGradient));
  registry->Add(Unary("Exp", MG_OP_COMPLEX_FLOAT_TYPES, ExpGradient));
  registry->Add(Unary("Log", MG_OP_COMPLEX_FLOAT_TYPES, LogGradient));
  registry->Add(Unary("Log1p", MG_OP_COMPLEX_FLOAT_TYPES, Log1pGradient));
  registry->Add(Unary("Sqrt", MG_OP_COMPLEX_FLOAT_TYPES, SqrtGradient));
  registry->Add(Unary("Rsqrt", MG_OP_COMPLEX_FLOAT_TYPES, RsqrtGradient));
  registry->Add(Unary("Square", MG_OP_ALL_NUMBERS, SquareGradient));
  registry->Add(
      Unary("Abs", "{bfloat16, half, float, double, int8, int16, int32, int64}", AbsGradient));
  registry->Add(Unary(
      "Sign", "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
      SignGradient));
  for (const char* name : {"Reciprocal", "Inv"}) {
    registry->Add(Unary(
        name, "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
        ReciprocalGradient));
  }
  registry->Add(Unary("Sigmoid", MG_OP_COMPLEX_FLOAT_TYPES, SigmoidGradient));
  registry->Add(Unary("Tanh", MG_OP_COMPLEX_FLOAT_TYPES, TanhGradient));
  registry->Add(Unary("Sin", MG_OP_COMPLEX_FLOAT_TYPES, SinGradient));
  registry->Add(Unary("Cos", MG_OP_COMPLEX_FLOAT_TYPES, CosGradient));
  registry->Add(Unary("Floor", MG_OP_FLOAT_TYPES, nullptr));
  registry->Add(Unary("Ceil", MG_OP_FLOAT_TYPES, nullptr));
  registry->Add(Unary(
      "Round", "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
      nullptr));
  registry->Add(UnaryGrad("SigmoidGrad", SigmoidGradGradient));
  registry->Add(UnaryGrad("TanhGrad", TanhGradGradient));
  registry->Add(UnaryGrad("SqrtGrad", SqrtGradGradient));
  registry->Add(UnaryGrad("RsqrtGrad", RsqrtGradGradient));
  registry->Add(UnaryGrad("ReciprocalGrad", ReciprocalGradGradient));
  registry->Add(UnaryGrad("InvGrad", ReciprocalGradGradient));

  registry->Add(Equality("Equal"));
  registry->Add(Equality("NotEqual"));
  for (const char* name : {"Less", "LessEqual", "Greater", "GreaterEqual"})
    registry->Add(Comparison(name));
  registry->Add(Logical("LogicalAnd"));
  registry->Add(Logical("LogicalOr"));
  registry->Add(
      OpDef("LogicalNot").Input("x: bool").Output("y: bool").Shape(UnchangedShape).NoGradient());
  for (const char* name : {"IsNan", "IsInf", "IsFinite"}) registry->Add(FloatTest(name));
  DefineFunctions(registry);
  registry->Add(OpDef("_FusedElementwise")  // chain.h
                    .Input("inputs: N * T")
                    .Output("y: T")
                    .Attr("N: int >= 1")
                    .Attr("T: {bfloat16, half, float, double}")
                    .Attr("ops: list(string) >= 1")
                    .Attr("operand: list(int) >= 1")
                    .Attr("operand_first: list(int) >= 1")
                    .Shape(ChainShape)
                    .NoGradient());
}

}  // namespace ops::elementwise
}  // namespace monograph
