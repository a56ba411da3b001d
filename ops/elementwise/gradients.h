// The gradients of the elementwise ops.
#pragma once

#include "graph/gradients.h"

namespace monograph::ops::elementwise {

// Sets both gradients of a broadcasting op, each summed to its operand's shape.
void SetSummed(GradientContext& c, const Output& x_gradient, const Output& y_gradient);

Status AddGradient(GradientContext& c);
Status SubGradient(GradientContext& c);
Status MulGradient(GradientContext& c);
Status DivGradient(GradientContext& c);  // also RealDiv
Status DivNoNanGradient(GradientContext& c);
Status FloorModGradient(GradientContext& c);
Status MaximumGradient(GradientContext& c);
Status MinimumGradient(GradientContext& c);
Status PowGradient(GradientContext& c);
Status SquaredDifferenceGradient(GradientContext& c);
Status AddNGradient(GradientContext& c);

Status NegGradient(GradientContext& c);
Status ExpGradient(GradientContext& c);
Status LogGradient(GradientContext& c);
Status Log1pGradient(GradientContext& c);
Status SqrtGradient(GradientContext& c);
Status RsqrtGradient(GradientContext& c);
Status SquareGradient(GradientContext& c);
Status AbsGradient(GradientContext& c);
Status SignGradient(GradientContext& c);
Status ReciprocalGradient(GradientContext& c);  // also Inv
Status SigmoidGradient(GradientContext& c);
Status TanhGradient(GradientContext& c);
Status SinGradient(GradientContext& c);
Status CosGradient(GradientContext& c);

Status SigmoidGradGradient(GradientContext& c);
Status TanhGradGradient(GradientContext& c);
Status SqrtGradGradient(GradientContext& c);
Status RsqrtGradGradient(GradientContext& c);
Status ReciprocalGradGradient(GradientContext& c);  // also InvGrad

}  // namespace monograph::ops::elementwise
