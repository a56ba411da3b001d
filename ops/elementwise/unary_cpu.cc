#include "ops/elementwise/functors.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {

void RegisterUnary(KernelRegistry* r) {
#define MG_FLOATS float, double, half, bfloat16
#define MG_SIGNED float, double, half, bfloat16, int32_t, int64_t, int8_t, int16_t
  AddUnary<NegFn, 2, MG_SIGNED>(r, "Neg");
  AddUnary<ExpFn, 10, MG_FLOATS>(r, "Exp");
  AddUnary<LogFn, 10, MG_FLOATS>(r, "Log");
  AddUnary<Log1pFn, 200, MG_FLOATS>(r, "Log1p");
  AddUnary<SqrtFn, 8, MG_FLOATS>(r, "Sqrt");
  AddUnary<RsqrtFn, 16, MG_FLOATS>(r, "Rsqrt");
  AddUnary<SquareFn, 2, float, double, half, bfloat16, int32_t, int64_t, uint8_t, int8_t, int16_t,
           uint16_t>(r, "Square");
  AddUnary<AbsFn, 2, MG_SIGNED>(r, "Abs");
  AddUnary<SignFn, 3, MG_SIGNED>(r, "Sign");
  AddUnary<ReciprocalFn, 8, MG_FLOATS>(r, "Reciprocal");
  AddUnary<ReciprocalFn, 8, MG_FLOATS>(r, "Inv");
  AddUnary<SigmoidFn, 15, MG_FLOATS>(r, "Sigmoid");
  AddUnary<TanhFn, 20, MG_FLOATS>(r, "Tanh");
  AddUnary<SinFn, 15, MG_FLOATS>(r, "Sin");
  AddUnary<CosFn, 15, MG_FLOATS>(r, "Cos");
  AddUnary<FloorFn, 2, MG_FLOATS>(r, "Floor");
  AddUnary<CeilFn, 2, MG_FLOATS>(r, "Ceil");
  AddUnary<RoundFn, 2, float, double, half, bfloat16, int32_t, int64_t>(r, "Round");
  r->Add({.op = "LogicalNot"}, &MakeUnary<UnaryRowFor<LogicalNotFn, bool>(), 2>);
  AddUnary<IsNanFn, 2, MG_FLOATS>(r, "IsNan");
  AddUnary<IsInfFn, 2, MG_FLOATS>(r, "IsInf");
  AddUnary<IsFiniteFn, 2, MG_FLOATS>(r, "IsFinite");
}

}  // namespace monograph::ops::elementwise
