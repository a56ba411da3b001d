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
Output Floor(const Scope& scope, const Output& x);
Output Ceil(const Scope& scope, const Output& x);
Output Round(const Scope& scope, const Output& x);  // half to even

// dx of y = op(x), from y and dy: dy*y*(1-y), dy*(1-y*y), dy*0.5/y, dy*-0.5*y^3, -dy*y*y.
Output SigmoidGrad(const Scope& scope, const Output& y, const Output& dy);
Output TanhGrad(const Scope& scope, const Output& y, const Output& dy);
Output SqrtGrad(const Scope& scope, const Output& y, const Output& dy);
Output RsqrtGrad(const Scope& scope, const Output& y, const Output& dy);
Output ReciprocalGrad(const Scope& scope, const Output& y, const Output& dy);

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
