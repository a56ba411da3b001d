// Gradients of elementwise ops, as nodes. An op of two operands ends with SetSummed: the gradient
// of an operand that was broadcast is summed over the dimensions in which it was repeated.
// Gradients are computed from the output y where that is cheaper than from x, by ops such as
// SigmoidGrad, which are differentiable in turn.
#include "ops/elementwise/gradients.h"

#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"

namespace monograph::ops::elementwise {

void SetSummed(GradientContext& c, const Output& x_gradient, const Output& y_gradient) {
  c.set_grad(0, SumToShapeOf(c.scope(), x_gradient, c.input(0), c.input(1)));
  c.set_grad(1, SumToShapeOf(c.scope(), y_gradient, c.input(1), c.input(0)));
}

namespace {

Output Scaled(const Scope& s, const Output& x, double factor) {
  return Mul(s, x, ScalarConst(s, factor, x.valid() ? x.dtype() : DT_FLOAT));
}

}  // namespace

Status AddGradient(GradientContext& c) {
  SetSummed(c, c.grad(0), c.grad(0));
  return Status();
}

Status SubGradient(GradientContext& c) {
  SetSummed(c, c.grad(0), Neg(c.scope(), c.grad(0)));
  return Status();
}

Status MulGradient(GradientContext& c) {
  SetSummed(c, Mul(c.scope(), c.grad(0), c.input(1)), Mul(c.scope(), c.input(0), c.grad(0)));
  return Status();
}

Status DivGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), y = c.input(1);
  SetSummed(c, RealDiv(s, c.grad(0), y),
            Mul(s, c.grad(0), RealDiv(s, RealDiv(s, Neg(s, x), y), y)));
  return Status();
}

Status DivNoNanGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), y = c.input(1);
  SetSummed(c, DivNoNan(s, c.grad(0), y),
            Mul(s, c.grad(0), DivNoNan(s, DivNoNan(s, Neg(s, x), y), y)));
  return Status();
}

Status FloorModGradient(GradientContext& c) {
  const Scope& s = c.scope();
  SetSummed(c, c.grad(0), Mul(s, c.grad(0), Neg(s, FloorDiv(s, c.input(0), c.input(1)))));
  return Status();
}

Status MaximumGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output mine = GreaterEqual(s, c.input(0), c.input(1)),
               zero = ScalarConst(s, 0, c.grad(0).dtype());
  SetSummed(c, Select(s, mine, c.grad(0), zero), Select(s, mine, zero, c.grad(0)));
  return Status();
}

Status MinimumGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output mine = LessEqual(s, c.input(0), c.input(1)),
               zero = ScalarConst(s, 0, c.grad(0).dtype());
  SetSummed(c, Select(s, mine, c.grad(0), zero), Select(s, mine, zero, c.grad(0)));
  return Status();
}

//   dx = g * y * x^(y-1)
//   dy = g * x^y * log(x), and 0 where x is not positive
Status PowGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output x = c.input(0), y = c.input(1), g = c.grad(0), z = c.output(0);
  const Output zero = ScalarConst(s, 0, x.dtype()), one = ScalarConst(s, 1, x.dtype());
  const Output positive = Greater(s, x, zero);
  const Output log_x = Select(s, positive, Log(s, Select(s, positive, x, one)), zero);
  SetSummed(c, Mul(s, Mul(s, g, y), Pow(s, x, Sub(s, y, one))), Mul(s, Mul(s, g, z), log_x));
  return Status();
}

Status SquaredDifferenceGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output g = Mul(s, Scaled(s, c.grad(0), 2), Sub(s, c.input(0), c.input(1)));
  SetSummed(c, g, Neg(s, g));
  return Status();
}

Status AddNGradient(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set_grad(i, c.grad(0));
  return Status();
}

Status NegGradient(GradientContext& c) {
  c.set_grad(0, Neg(c.scope(), c.grad(0)));
  return Status();
}

Status ExpGradient(GradientContext& c) {
  c.set_grad(0, Mul(c.scope(), c.grad(0), c.output(0)));
  return Status();
}

Status LogGradient(GradientContext& c) {
  c.set_grad(0, Mul(c.scope(), c.grad(0), Reciprocal(c.scope(), c.input(0))));
  return Status();
}

Status Log1pGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output one = ScalarConst(s, 1, c.input(0).dtype());
  c.set_grad(0, Mul(s, c.grad(0), Reciprocal(s, Add(s, one, c.input(0)))));
  return Status();
}

Status SqrtGradient(GradientContext& c) {
  c.set_grad(0, SqrtGrad(c.scope(), c.output(0), c.grad(0)));
  return Status();
}

Status RsqrtGradient(GradientContext& c) {
  c.set_grad(0, RsqrtGrad(c.scope(), c.output(0), c.grad(0)));
  return Status();
}

Status SquareGradient(GradientContext& c) {
  c.set_grad(0, Mul(c.scope(), c.grad(0), Scaled(c.scope(), c.input(0), 2)));
  return Status();
}

Status AbsGradient(GradientContext& c) {
  c.set_grad(0, Mul(c.scope(), c.grad(0), Sign(c.scope(), c.input(0))));
  return Status();
}

Status SignGradient(GradientContext& c) {
  c.set_grad(0, ZerosLike(c.scope(), c.input(0)));
  return Status();
}

Status ReciprocalGradient(GradientContext& c) {
  c.set_grad(0, ReciprocalGrad(c.scope(), c.output(0), c.grad(0)));
  return Status();
}

Status SigmoidGradient(GradientContext& c) {
  c.set_grad(0, SigmoidGrad(c.scope(), c.output(0), c.grad(0)));
  return Status();
}

Status TanhGradient(GradientContext& c) {
  c.set_grad(0, TanhGrad(c.scope(), c.output(0), c.grad(0)));
  return Status();
}

Status SinGradient(GradientContext& c) {
  const Scope& s = c.scope();
  c.set_grad(0, Mul(s, c.grad(0), Cos(s, c.input(0))));
  return Status();
}

Status CosGradient(GradientContext& c) {
  const Scope& s = c.scope();
  c.set_grad(0, Mul(s, c.grad(0), Neg(s, Sin(s, c.input(0)))));
  return Status();
}

// z = dy*y*(1-y):  dz/dy = dy*(1-2y), dz/d(dy) = y*(1-y).
Status SigmoidGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.input(0), g = c.grad(0), gdy = Mul(s, g, c.input(1));
  c.set_grad(0, Sub(s, gdy, Mul(s, Scaled(s, gdy, 2), y)));
  c.set_grad(1, SigmoidGrad(s, y, g));
  return Status();
}

// z = dy*(1-y*y):  dz/dy = -2*dy*y, dz/d(dy) = 1-y*y.
Status TanhGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.input(0), g = c.grad(0);
  c.set_grad(0, Mul(s, Mul(s, Scaled(s, g, -2), c.input(1)), y));
  c.set_grad(1, TanhGrad(s, y, g));
  return Status();
}

// z = 0.5*dy/y:  dz/dy = -z/y, dz/d(dy) = 0.5/y.
Status SqrtGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output ratio = RealDiv(s, c.grad(0), c.input(0));
  c.set_grad(0, Mul(s, Neg(s, ratio), c.output(0)));
  c.set_grad(1, Scaled(s, ratio, 0.5));
  return Status();
}

// z = -0.5*dy*y^3:  dz/dy = -1.5*dy*y^2, dz/d(dy) = -0.5*y^3.
Status RsqrtGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.input(0), g = c.grad(0);
  c.set_grad(0, Mul(s, Mul(s, Scaled(s, g, -1.5), c.input(1)), Square(s, y)));
  c.set_grad(1, RsqrtGrad(s, y, g));
  return Status();
}

// z = -dy*y*y:  dz/dy = -2*dy*y, dz/d(dy) = -y*y.
Status ReciprocalGradGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output y = c.input(0), g = c.grad(0);
  c.set_grad(0, Mul(s, Mul(s, Scaled(s, g, -2), c.input(1)), y));
  c.set_grad(1, ReciprocalGrad(s, y, g));
  return Status();
}

}  // namespace monograph::ops::elementwise
