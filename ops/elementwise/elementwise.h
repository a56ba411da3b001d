// Arithmetic, comparison and logic, element by element. Two operands broadcast as NumPy's do.
// Types: as TensorFlow's ops of the same names. Integers wrap; dividing an integer by zero fails
// the step with InvalidArgument.
#pragma once

#include "graph/scope.h"

namespace monograph {

Output Add(const Scope& scope, const Output& x, const Output& y);  // the op AddV2
Output Sub(const Scope& scope, const Output& x, const Output& y);
Output Mul(const Scope& scope, const Output& x, const Output& y);
Output Div(const Scope& scope, const Output& x,
           const Output& y);  // integers: truncates, as C++ does
Output RealDiv(const Scope& scope, const Output& x, const Output& y);
Output FloorDiv(const Scope& scope, const Output& x, const Output& y);  // Python's //
Output FloorMod(const Scope& scope, const Output& x, const Output& y);  // Python's %
Output DivNoNan(const Scope& scope, const Output& x, const Output& y);  // 0 where y is 0
Output Maximum(const Scope& scope, const Output& x, const Output& y);
Output Minimum(const Scope& scope, const Output& x, const Output& y);
Output Pow(const Scope& scope, const Output& x, const Output& y);
Output SquaredDifference(const Scope& scope, const Output& x, const Output& y);
Output TruncateDiv(const Scope& scope, const Output& x, const Output& y);  // C++'s / and %
Output TruncateMod(const Scope& scope, const Output& x, const Output& y);
Output MulNoNan(const Scope& scope, const Output& x, const Output& y);  // 0 where y is 0
// x*log(y), x*log(1+y) and x/y; 0 where x is 0.
Output Xlogy(const Scope& scope, const Output& x, const Output& y);
Output Xlog1py(const Scope& scope, const Output& x, const Output& y);
Output Xdivy(const Scope& scope, const Output& x, const Output& y);
// The angle of the point (x, y), in (-pi, pi].
Output Atan2(const Scope& scope, const Output& y, const Output& x);
// The sum of one or more tensors of one shape, added in their order.
Output AddN(const Scope& scope, const Outputs& inputs);

Output Neg(const Scope& scope, const Output& x);
Output Exp(const Scope& scope, const Output& x);
Output Log(const Scope& scope, const Output& x);
Output Log1p(const Scope& scope, const Output& x);
Output Sqrt(const Scope& scope, const Output& x);
Output Rsqrt(const Scope& scope, const Output& x);
Output Square(const Scope& scope, const Output& x);
Output Abs(const Scope& scope, const Output& x);
Output Sign(const Scope& scope, const Output& x);
Output Reciprocal(const Scope& scope, const Output& x);
Output Sigmoid(const Scope& scope, const Output& x);
Output Tanh(const Scope& scope, const Output& x);
Output Sin(const Scope& scope, const Output& x);  // radians
Output Cos(const Scope& scope, const Output& x);
Output Tan(const Scope& scope, const Output& x);
Output Asin(const Scope& scope, const Output& x);
Output Acos(const Scope& scope, const Output& x);
Output Atan(const Scope& scope, const Output& x);
Output Sinh(const Scope& scope, const Output& x);
Output Cosh(const Scope& scope, const Output& x);
Output Asinh(const Scope& scope, const Output& x);
Output Acosh(const Scope& scope, const Output& x);
Output Atanh(const Scope& scope, const Output& x);
Output Expm1(const Scope& scope, const Output& x);
Output Erf(const Scope& scope, const Output& x);
Output Erfc(const Scope& scope, const Output& x);
Output Erfinv(const Scope& scope, const Output& x);
Output Ndtri(const Scope& scope, const Output& x);   // the normal distribution's quantile
Output Lgamma(const Scope& scope, const Output& x);  // log(|Gamma(x)|)
Output Digamma(const Scope& scope, const Output& x);
// Bessel functions: J and Y, modified I and K, of orders 0 and 1. "e": times exp(-|x|) (I) or
// exp(x) (K). Where x < 0 those of Y are -infinity and those of K infinity, as TensorFlow's.
Output BesselI0(const Scope& scope, const Output& x);
Output BesselI0e(const Scope& scope, const Output& x);
Output BesselI1(const Scope& scope, const Output& x);
Output BesselI1e(const Scope& scope, const Output& x);
Output BesselJ0(const Scope& scope, const Output& x);
Output BesselJ1(const Scope& scope, const Output& x);
Output BesselK0(const Scope& scope, const Output& x);
Output BesselK0e(const Scope& scope, const Output& x);
Output BesselK1(const Scope& scope, const Output& x);
Output BesselK1e(const Scope& scope, const Output& x);
Output BesselY0(const Scope& scope, const Output& x);
Output BesselY1(const Scope& scope, const Output& x);
Output Rint(const Scope& scope, const Output& x);  // half to even
Output Floor(const Scope& scope, const Output& x);
Output Ceil(const Scope& scope, const Output& x);
Output Round(const Scope& scope, const Output& x);  // half to even

// dx of y = op(x), from y and dy: dy*y*(1-y), dy*(1-y*y), dy*0.5/y, dy*-0.5*y^3, -dy*y*y.
Output SigmoidGrad(const Scope& scope, const Output& y, const Output& dy);
Output TanhGrad(const Scope& scope, const Output& y, const Output& dy);
Output SqrtGrad(const Scope& scope, const Output& y, const Output& dy);
Output RsqrtGrad(const Scope& scope, const Output& y, const Output& dy);
Output ReciprocalGrad(const Scope& scope, const Output& y, const Output& dy);

// Functions of two arguments: derivatives of Digamma, Hurwitz' zeta, the regularised incomplete
// gamma functions (lower and upper) and the lower one's derivative by a.
Output Polygamma(const Scope& scope, const Output& a, const Output& x);
Output Zeta(const Scope& scope, const Output& x, const Output& q);
Output Igamma(const Scope& scope, const Output& a, const Output& x);
Output Igammac(const Scope& scope, const Output& a, const Output& x);
Output IgammaGradA(const Scope& scope, const Output& a, const Output& x);
// The regularised incomplete beta function. Each of a, b and x is a scalar or has the shape of the
// others that are none. No gradient flows to a and b.
Output Betainc(const Scope& scope, const Output& a, const Output& b, const Output& x);

// Integers, bit by bit. A shift by less than 0 bits is one by 0, by too many one by all but one;
// RightShift keeps the sign.
Output BitwiseAnd(const Scope& scope, const Output& x, const Output& y);
Output BitwiseOr(const Scope& scope, const Output& x, const Output& y);
Output BitwiseXor(const Scope& scope, const Output& x, const Output& y);
Output LeftShift(const Scope& scope, const Output& x, const Output& y);
Output RightShift(const Scope& scope, const Output& x, const Output& y);
Output Invert(const Scope& scope, const Output& x);
Output PopulationCount(const Scope& scope, const Output& x);  // bits that are set, as uint8

// max(min(t, high), low); `low` and `high` are scalars or of t's shape.
Output ClipByValue(const Scope& scope, const Output& t, const Output& low, const Output& high);
// The vector product, of the last dimension, which has 3 elements.
Output Cross(const Scope& scope, const Output& a, const Output& b);
// The next number after x in the direction of y.
Output NextAfter(const Scope& scope, const Output& x, const Output& y);

// Comparisons give bool.
Output Equal(const Scope& scope, const Output& x, const Output& y);
Output NotEqual(const Scope& scope, const Output& x, const Output& y);
Output Less(const Scope& scope, const Output& x, const Output& y);
Output LessEqual(const Scope& scope, const Output& x, const Output& y);
Output Greater(const Scope& scope, const Output& x, const Output& y);
Output GreaterEqual(const Scope& scope, const Output& x, const Output& y);
Output LogicalAnd(const Scope& scope, const Output& x, const Output& y);
Output LogicalOr(const Scope& scope, const Output& x, const Output& y);
Output LogicalNot(const Scope& scope, const Output& x);
Output IsNan(const Scope& scope, const Output& x);
Output IsInf(const Scope& scope, const Output& x);
Output IsFinite(const Scope& scope, const Output& x);

}  // namespace monograph
