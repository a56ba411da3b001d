// Trigonometric, hyperbolic and special functions, operations on bits, and ops of three operands:
// their functions, definitions and gradients. Most differ in name, types and gradient
// alone, so a row of a table is a definition. Gradients are those of TensorFlow's registry; some
// are computed from the output, where that is cheaper.
#include "ops/elementwise/functions.h"

#include <numbers>

#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/gradients.h"
#include "ops/reduce/reduce.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/types.h"

namespace monograph {

#define MG_BINARY(function)                                               \
  Output function(const Scope& scope, const Output& x, const Output& y) { \
    return OpBuilder(scope, #function).Input(x).Input(y).BuildOutput();   \
  }
MG_BINARY(TruncateDiv)
MG_BINARY(TruncateMod)
MG_BINARY(MulNoNan)
MG_BINARY(Xlogy)
MG_BINARY(Xlog1py)
MG_BINARY(Xdivy)
MG_BINARY(Atan2)
MG_BINARY(NextAfter)
MG_BINARY(Polygamma)
MG_BINARY(Zeta)
MG_BINARY(Igamma)
MG_BINARY(Igammac)
MG_BINARY(IgammaGradA)
MG_BINARY(BitwiseAnd)
MG_BINARY(BitwiseOr)
MG_BINARY(BitwiseXor)
MG_BINARY(LeftShift)
MG_BINARY(RightShift)
MG_BINARY(Cross)
#undef MG_BINARY

#define MG_UNARY(function)                                     \
  Output function(const Scope& scope, const Output& x) {       \
    return OpBuilder(scope, #function).Input(x).BuildOutput(); \
  }
MG_UNARY(Tan)
MG_UNARY(Asin)
MG_UNARY(Acos)
MG_UNARY(Atan)
MG_UNARY(Sinh)
MG_UNARY(Cosh)
MG_UNARY(Asinh)
MG_UNARY(Acosh)
MG_UNARY(Atanh)
MG_UNARY(Expm1)
MG_UNARY(Erf)
MG_UNARY(Erfc)
MG_UNARY(Erfinv)
MG_UNARY(Ndtri)
MG_UNARY(Lgamma)
MG_UNARY(Digamma)
MG_UNARY(BesselI0)
MG_UNARY(BesselI0e)
MG_UNARY(BesselI1)
MG_UNARY(BesselI1e)
MG_UNARY(BesselJ0)
MG_UNARY(BesselJ1)
MG_UNARY(BesselK0)
MG_UNARY(BesselK0e)
MG_UNARY(BesselK1)
MG_UNARY(BesselK1e)
MG_UNARY(BesselY0)
MG_UNARY(BesselY1)
MG_UNARY(Rint)
MG_UNARY(Invert)
MG_UNARY(PopulationCount)
#undef MG_UNARY

Output Betainc(const Scope& scope, const Output& a, const Output& b, const Output& x) {
  return OpBuilder(scope, "Betainc").Input(a).Input(b).Input(x).BuildOutput();
}

Output ClipByValue(const Scope& scope, const Output& t, const Output& low, const Output& high) {
  return OpBuilder(scope, "ClipByValue").Input(t).Input(low).Input(high).BuildOutput();
}

namespace ops::elementwise {
namespace {

Output Number(GradientContext& c, double value) {
  return ScalarConst(c.scope(), value, c.input(0).dtype());
}

// The gradient of the one input is what flows in times `slope`.
Status Times(GradientContext& c, const Output& slope) {
  c.set_grad(0, Mul(c.scope(), c.grad(0), slope));
  return Status();
}

Status TanGradient(GradientContext& c) {
  const Scope& s = c.scope();
  return Times(c, Square(s, Reciprocal(s, Cos(s, c.input(0)))));
}

// 1 / sqrt(1 - x^2)
Output SlopeOfAsin(GradientContext& c) {
  const Scope& s = c.scope();
  return Reciprocal(s, Sqrt(s, Sub(s, Number(c, 1), Square(s, c.input(0)))));
}
Status AsinGradient(GradientContext& c) { return Times(c, SlopeOfAsin(c)); }
Status AcosGradient(GradientContext& c) { return Times(c, Neg(c.scope(), SlopeOfAsin(c))); }

Status AtanGradient(GradientContext& c) {
  const Scope& s = c.scope();
  return Times(c, Reciprocal(s, Add(s, Number(c, 1), Square(s, c.input(0)))));
}

Status SinhGradient(GradientContext& c) { return Times(c, Cosh(c.scope(), c.input(0))); }
Status CoshGradient(GradientContext& c) { return Times(c, Sinh(c.scope(), c.input(0))); }

Status AsinhGradient(GradientContext& c) {
  c.set_grad(0, RealDiv(c.scope(), c.grad(0), Cosh(c.scope(), c.output(0))));
  return Status();
}
Status AcoshGradient(GradientContext& c) {
  c.set_grad(0, RealDiv(c.scope(), c.grad(0), Sinh(c.scope(), c.output(0))));
  return Status();
}

Status AtanhGradient(GradientContext& c) {
  const Scope& s = c.scope();
  return Times(c, Reciprocal(s, Sub(s, Number(c, 1), Square(s, c.input(0)))));
}

Status Expm1Gradient(GradientContext& c) { return Times(c, Exp(c.scope(), c.input(0))); }

// factor * exp(-x^2)
Status ErrorFunction(GradientContext& c, double factor) {
  const Scope& s = c.scope();
  return Times(c, Mul(s, Number(c, factor), Exp(s, Neg(s, Square(s, c.input(0))))));
}
Status ErfGradient(GradientContext& c) { return ErrorFunction(c, 2 * std::numbers::inv_sqrtpi); }
Status ErfcGradient(GradientContext& c) { return ErrorFunction(c, -2 * std::numbers::inv_sqrtpi); }

// Of inverse functions, from the output: sqrt(pi)/2 * exp(y^2) and sqrt(2 pi) * exp(y^2/2).
Status ErfinvGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output factor = Number(c, 0.5 / std::numbers::inv_sqrtpi);
  return Times(c, Mul(s, factor, Exp(s, Square(s, c.output(0)))));
}
Status NdtriGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output factor = Number(c, std::numbers::sqrt2 / std::numbers::inv_sqrtpi);
  return Times(c, Mul(s, factor, Exp(s, Mul(s, Square(s, c.output(0)), Number(c, 0.5)))));
}

Status LgammaGradient(GradientContext& c) { return Times(c, Digamma(c.scope(), c.input(0))); }
Status DigammaGradient(GradientContext& c) {
  return Times(c, Polygamma(c.scope(), Number(c, 1), c.input(0)));
}

// Of Bessel functions, from the recurrences of their derivatives. That of order 1 at 0 is 1/2 for I
// and J.
Status BesselI0Gradient(GradientContext& c) { return Times(c, BesselI1(c.scope(), c.input(0))); }
Status BesselI0eGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0);
  return Times(c, Sub(s, BesselI1e(s, x), Mul(s, Sign(s, x), c.output(0))));
}
Output HalfAtZero(GradientContext& c, const Output& elsewhere) {
  const Scope& s = c.scope();
  const Output is_zero = Equal(s, c.input(0), Number(c, 0));
  return Select(s, is_zero, Number(c, 0.5), elsewhere);
}
Status BesselI1Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0);
  return Times(c, HalfAtZero(c, Sub(s, BesselI0(s, x), RealDiv(s, c.output(0), x))));
}
Status BesselI1eGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), lost = Mul(s, c.output(0), Add(s, Sign(s, x), Reciprocal(s, x)));
  return Times(c, HalfAtZero(c, Sub(s, BesselI0e(s, x), lost)));
}
Status BesselJ0Gradient(GradientContext& c) {
  return Times(c, Neg(c.scope(), BesselJ1(c.scope(), c.input(0))));
}
Status BesselJ1Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0);
  return Times(c, HalfAtZero(c, Sub(s, BesselJ0(s, x), RealDiv(s, c.output(0), x))));
}
Status BesselK0Gradient(GradientContext& c) {
  return Times(c, Neg(c.scope(), BesselK1(c.scope(), c.input(0))));
}
Status BesselK0eGradient(GradientContext& c) {
  return Times(c, Sub(c.scope(), c.output(0), BesselK1e(c.scope(), c.input(0))));
}
Status BesselK1Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0);
  return Times(c, Neg(s, Add(s, BesselK0(s, x), RealDiv(s, c.output(0), x))));
}
Status BesselK1eGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), kept = Sub(s, Number(c, 1), Reciprocal(s, x));
  return Times(c, Sub(s, Mul(s, c.output(0), kept), BesselK0e(s, x)));
}
Status BesselY0Gradient(GradientContext& c) {
  return Times(c, Neg(c.scope(), BesselY1(c.scope(), c.input(0))));
}
Status BesselY1Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0);
  return Times(c, Sub(s, BesselY0(s, x), RealDiv(s, c.output(0), x)));
}

// The gradient of the second operand alone.
void SetSecond(GradientContext& c, const Output& gradient) {
  c.set_grad(1, SumToShapeOf(c.scope(), gradient, c.input(1), c.input(0)));
}

Status PolygammaGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output next = Polygamma(s, Add(s, c.input(0), Number(c, 1)), c.input(1));
  SetSecond(c, Mul(s, c.grad(0), next));
  return Status();
}

// -x * zeta(x + 1, q)
Status ZetaGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), next = Zeta(s, Add(s, x, Number(c, 1)), c.input(1));
  SetSecond(c, Mul(s, c.grad(0), Mul(s, Neg(s, x), next)));
  return Status();
}

// dx = exp(-x + (a-1) log(x) - lgamma(a)): of logarithms, since Gamma grows fast. `g` flows in.
void SetIncompleteGamma(GradientContext& c, const Output& g) {
  const Scope& s = c.scope();
  const Output a = c.input(0), x = c.input(1);
  const Output power = Mul(s, Sub(s, a, Number(c, 1)), Log(s, x));
  const Output density = Exp(s, Sub(s, Sub(s, power, x), Lgamma(s, a)));
  SetSummed(c, Mul(s, g, IgammaGradA(s, a, x)), Mul(s, g, density));
}
Status IgammaGradient(GradientContext& c) {
  SetIncompleteGamma(c, c.grad(0));
  return Status();
}
Status IgammacGradient(GradientContext& c) {
  SetIncompleteGamma(c, Neg(c.scope(), c.grad(0)));
  return Status();
}

// dx = x^(a-1) (1-x)^(b-1) / B(a, b): of logarithms, as above.
Status BetaincGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output a = c.input(0), b = c.input(1), x = c.input(2);
  const Output one = Number(c, 1);
  const Output log_beta = Sub(s, Add(s, Lgamma(s, a), Lgamma(s, b)), Lgamma(s, Add(s, a, b)));
  const Output powers = Add(s, Xlog1py(s, Sub(s, b, one), Neg(s, x)), Xlogy(s, Sub(s, a, one), x));
  const Output by_x = Mul(s, c.grad(0), Exp(s, Sub(s, powers, log_beta)));
  c.set_grad(2, SumToShapeOf(s, by_x, x, c.output(0)));
  return Status();
}

// What is no scalar has the shape of the result.
Status BetaincShape(ShapeContext& c) {
  PartialShape shape = PartialShape::Scalar();
  bool known = true;
  for (int i = 0; i < 3; ++i) {
    const PartialShape& input = c.input(i);
    known = known && input.known_rank();
    if (!input.known_rank() || input.rank() == 0) continue;
    if (shape.rank() == 0) shape = input;
    MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, input));
  }
  // One of unknown rank may be a scalar, too.
  c.set_output(0, known || shape.rank() > 0 ? shape : PartialShape());
  return Status();
}

Status TruncateModGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output quotient = TruncateDiv(s, c.input(0), c.input(1));
  SetSummed(c, c.grad(0), Mul(s, c.grad(0), Neg(s, quotient)));
  return Status();
}

Status MulNoNanGradient(GradientContext& c) {
  const Scope& s = c.scope();
  SetSummed(c, MulNoNan(s, c.grad(0), c.input(1)), MulNoNan(s, c.input(0), c.grad(0)));
  return Status();
}

// 1 where x is not 0, else 0.
Output Counts(GradientContext& c) {
  const Scope& s = c.scope();
  return Cast(s, NotEqual(s, c.input(0), Number(c, 0)), c.input(0).dtype());
}

Status XlogyGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), y = c.input(1), g = c.grad(0);
  SetSummed(c, Mul(s, Xlogy(s, Counts(c), y), g), Mul(s, Xdivy(s, x, y), g));
  return Status();
}
Status Xlog1pyGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), y = c.input(1), g = c.grad(0);
  const Output by_y = Xdivy(s, x, Add(s, y, Number(c, 1)));
  SetSummed(c, Mul(s, Xlog1py(s, Counts(c), y), g), Mul(s, by_y, g));
  return Status();
}
Status XdivyGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), y = c.input(1), g = c.grad(0);
  const Output by_y = Xdivy(s, Neg(s, x), Square(s, y));
  SetSummed(c, Mul(s, Xdivy(s, Counts(c), y), g), Mul(s, by_y, g));
  return Status();
}

// Of atan2(y, x): x / (x^2 + y^2) and -y / (x^2 + y^2).
Status Atan2Gradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.input(0), x = c.input(1);
  const Output share = RealDiv(s, c.grad(0), Add(s, Square(s, x), Square(s, y)));
  SetSummed(c, Mul(s, x, share), Mul(s, Neg(s, y), share));
  return Status();
}

// The result moves with the first operand; the second one only gives the direction.
Status NextAfterGradient(GradientContext& c) {
  const Scope& s = c.scope();
  SetSummed(c, c.grad(0), ZerosLike(s, c.grad(0)));
  return Status();
}

Status CrossGradient(GradientContext& c) {
  const Scope& s = c.scope();
  c.set_grad(0, Cross(s, c.input(1), c.grad(0)));
  c.set_grad(1, Cross(s, c.grad(0), c.input(0)));
  return Status();
}

// The gradient goes to the one that the result is: t, the lower or the upper bound.
Status ClipGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output t = c.input(0), low = c.input(1), high = c.input(2), g = c.grad(0);
  const Output zeros = ZerosLike(s, g), below = Less(s, t, low), above = Greater(s, t, high);
  c.set_grad(0, Select(s, LogicalOr(s, below, above), zeros, g));
  c.set_grad(1, SumToShapeOf(s, Select(s, below, g, zeros), low, t));
  c.set_grad(2, SumToShapeOf(s, Select(s, above, g, zeros), high, t));
  return Status();
}

Status ClipShape(ShapeContext& c) {
  PartialShape shape = c.input(0);
  for (int i : {1, 2}) {
    const PartialShape& bound = c.input(i);
    if (!bound.known_rank() || bound.rank() == 0) continue;
    MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, bound));
  }
  c.set_output(0, shape);
  return Status();
}

Status CrossShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(MergeAllShape(c));
  for (int i : {0, 1}) {
    const PartialShape& shape = c.input(i);
    if (!shape.known_rank()) continue;
    const int64_t last = shape.rank() == 0 ? 0 : shape.dim(shape.rank() - 1);
    if (last >= 0 && last != 3) {
      return InvalidArgument("the last dimension must have 3 elements, got shape " +
                             shape.ToString());
    }
  }
  return Status();
}

struct Row {
  const char *name, *types;
  GradientFn gradient;
};

#define MG_OP_BIT_TYPES "{int8, int16, int32, int64, uint8, uint16, uint32, uint64}"

constexpr Row kUnary[] = {
    {"Tan", MG_OP_COMPLEX_FLOAT_TYPES, TanGradient},
    {"Asin", MG_OP_COMPLEX_FLOAT_TYPES, AsinGradient},
    {"Acos", MG_OP_COMPLEX_FLOAT_TYPES, AcosGradient},
    {"Atan", MG_OP_COMPLEX_FLOAT_TYPES, AtanGradient},
    {"Sinh", MG_OP_COMPLEX_FLOAT_TYPES, SinhGradient},
    {"Cosh", MG_OP_COMPLEX_FLOAT_TYPES, CoshGradient},
    {"Asinh", MG_OP_COMPLEX_FLOAT_TYPES, AsinhGradient},
    {"Acosh", MG_OP_COMPLEX_FLOAT_TYPES, AcoshGradient},
    {"Atanh", MG_OP_COMPLEX_FLOAT_TYPES, AtanhGradient},
    {"Expm1", MG_OP_COMPLEX_FLOAT_TYPES, Expm1Gradient},
    {"Erf", MG_OP_FLOAT_TYPES, ErfGradient},
    {"Erfc", MG_OP_FLOAT_TYPES, ErfcGradient},
    {"Erfinv", MG_OP_FLOAT_TYPES, ErfinvGradient},
    {"Ndtri", MG_OP_FLOAT_TYPES, NdtriGradient},
    {"Lgamma", MG_OP_FLOAT_TYPES, LgammaGradient},
    {"Digamma", MG_OP_FLOAT_TYPES, DigammaGradient},
    {"BesselI0", MG_OP_FLOAT_TYPES, BesselI0Gradient},
    {"BesselI0e", MG_OP_FLOAT_TYPES, BesselI0eGradient},
    {"BesselI1", MG_OP_FLOAT_TYPES, BesselI1Gradient},
    {"BesselI1e", MG_OP_FLOAT_TYPES, BesselI1eGradient},
    {"BesselJ0", MG_OP_FLOAT_TYPES, BesselJ0Gradient},
    {"BesselJ1", MG_OP_FLOAT_TYPES, BesselJ1Gradient},
    {"BesselK0", MG_OP_FLOAT_TYPES, BesselK0Gradient},
    {"BesselK0e", MG_OP_FLOAT_TYPES, BesselK0eGradient},
    {"BesselK1", MG_OP_FLOAT_TYPES, BesselK1Gradient},
    {"BesselK1e", MG_OP_FLOAT_TYPES, BesselK1eGradient},
    {"BesselY0", MG_OP_FLOAT_TYPES, BesselY0Gradient},
    {"BesselY1", MG_OP_FLOAT_TYPES, BesselY1Gradient},
    {"Rint", MG_OP_FLOAT_TYPES, nullptr},
    {"Invert", MG_OP_BIT_TYPES, nullptr},
};

constexpr Row kBinary[] = {
    {"TruncateDiv",
     "{bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
     "complex64, complex128}",
     nullptr},
    {"TruncateMod", "{int32, int64, bfloat16, half, float, double}", TruncateModGradient},
    {"Mod", "{int32, int64, half, bfloat16, float, double}", TruncateModGradient},
    {"MulNoNan", MG_OP_COMPLEX_FLOAT_TYPES, MulNoNanGradient},
    {"Xlogy", MG_OP_COMPLEX_FLOAT_TYPES, XlogyGradient},
    {"Xlog1py", MG_OP_COMPLEX_FLOAT_TYPES, Xlog1pyGradient},
    {"Xdivy", MG_OP_COMPLEX_FLOAT_TYPES, XdivyGradient},
};

// Definitions whose arguments have names of their own.
OpDef Named(const char* name, const char* first, const char* second, const char* output,
            const char* types, GradientFn gradient) {
  OpDef def(name);
  def.Input(std::string(first) + ": T")
      .Input(std::string(second) + ": T")
      .Output(std::string(output) + ": T")
      .Attr(std::string("T: ") + types)
      .Shape(BroadcastShape);
  gradient != nullptr ? def.Gradient(gradient) : def.NoGradient();
  return def;
}

}  // namespace

void DefineFunctions(OpRegistry* registry) {
  for (const Row& row : kUnary) registry->Add(Unary(row.name, row.types, row.gradient));
  for (const Row& row : kBinary) registry->Add(Binary(row.name, row.types, row.gradient));
  for (const char* name : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    registry->Add(Binary(name, MG_OP_BIT_TYPES, nullptr).Commutative());
  for (const char* name : {"LeftShift", "RightShift"})
    registry->Add(Binary(name, MG_OP_BIT_TYPES, nullptr));
  registry->Add(OpDef("PopulationCount")
                    .Input("x: T")
                    .Output("y: uint8")
                    .Attr("T: " MG_OP_BIT_TYPES)
                    .Shape(UnchangedShape)
                    .NoGradient());
  registry->Add(Named("Atan2", "y", "x", "z", MG_OP_FLOAT_TYPES, Atan2Gradient));
  registry->Add(
      Named("NextAfter", "x1", "x2", "output", "{double, float} = DT_FLOAT", NextAfterGradient));
  registry->Add(Named("Polygamma", "a", "x", "z", "{float, double}", PolygammaGradient));
  registry->Add(Named("Zeta", "x", "q", "z", "{float, double}", ZetaGradient));
  registry->Add(Named("Igamma", "a", "x", "z", MG_OP_FLOAT_TYPES, IgammaGradient));
  registry->Add(Named("Igammac", "a", "x", "z", MG_OP_FLOAT_TYPES, IgammacGradient));
  registry->Add(Named("IgammaGradA", "a", "x", "z", "{float, double}", nullptr));
  registry->Add(OpDef("Betainc")
                    .Input("a: T")
                    .Input("b: T")
                    .Input("x: T")
                    .Output("z: T")
                    .Attr("T: {float, double}")
                    .Shape(BetaincShape)
                    .Gradient(BetaincGradient));
  registry->Add(
      Named("Cross", "a", "b", "product", MG_OP_REAL_TYPES, CrossGradient).Shape(CrossShape));
  registry->Add(OpDef("ApproximateEqual")
                    .Input("x: T")
                    .Input("y: T")
                    .Output("z: bool")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("tolerance: float = 1e-5")
                    .Commutative()
                    .Shape(MergeAllShape)
                    .NoGradient());
  registry->Add(OpDef("ClipByValue")
                    .Input("t: T")
                    .Input("clip_value_min: T")
                    .Input("clip_value_max: T")
                    .Output("output: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Shape(ClipShape)
                    .Gradient(ClipGradient));
}

}  // namespace ops::elementwise
}  // namespace monograph
