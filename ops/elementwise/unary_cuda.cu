#include "ops/elementwise/functors.h"
#include "ops/elementwise/loops_cuda.h"

namespace monograph::ops::elementwise {

void RegisterUnaryCuda(KernelRegistry* r) {
#define MG_FLOATS float, double, half, bfloat16
  AddDeviceUnary<NegFn, MG_FLOATS, int64_t>(r, "Neg");
  AddDeviceUnary<ExpFn, MG_FLOATS>(r, "Exp");
  AddDeviceUnary<LogFn, MG_FLOATS>(r, "Log");
  AddDeviceUnary<Log1pFn, MG_FLOATS>(r, "Log1p");
  AddDeviceUnary<SqrtFn, MG_FLOATS>(r, "Sqrt");
  AddDeviceUnary<RsqrtFn, MG_FLOATS>(r, "Rsqrt");
  AddDeviceUnary<SquareFn, MG_FLOATS, int64_t>(r, "Square");
  AddDeviceUnary<AbsFn, MG_FLOATS, int64_t>(r, "Abs");
  AddDeviceUnary<SignFn, MG_FLOATS, int64_t>(r, "Sign");
  AddDeviceUnary<ReciprocalFn, MG_FLOATS>(r, "Reciprocal");
  AddDeviceUnary<ReciprocalFn, MG_FLOATS>(r, "Inv");
  AddDeviceUnary<SigmoidFn, MG_FLOATS>(r, "Sigmoid");
  AddDeviceUnary<TanhFn, MG_FLOATS>(r, "Tanh");
  AddDeviceUnary<SinFn, MG_FLOATS>(r, "Sin");
  AddDeviceUnary<CosFn, MG_FLOATS>(r, "Cos");
  AddDeviceUnary<TanFn, MG_FLOATS>(r, "Tan");
  AddDeviceUnary<AsinFn, MG_FLOATS>(r, "Asin");
  AddDeviceUnary<AcosFn, MG_FLOATS>(r, "Acos");
  AddDeviceUnary<AtanFn, MG_FLOATS>(r, "Atan");
  AddDeviceUnary<SinhFn, MG_FLOATS>(r, "Sinh");
  AddDeviceUnary<CoshFn, MG_FLOATS>(r, "Cosh");
  AddDeviceUnary<AsinhFn, MG_FLOATS>(r, "Asinh");
  AddDeviceUnary<AcoshFn, MG_FLOATS>(r, "Acosh");
  AddDeviceUnary<AtanhFn, MG_FLOATS>(r, "Atanh");
  AddDeviceUnary<Expm1Fn, MG_FLOATS>(r, "Expm1");
  AddDeviceUnary<ErfFn, MG_FLOATS>(r, "Erf");
  AddDeviceUnary<ErfcFn, MG_FLOATS>(r, "Erfc");
  AddDeviceUnary<RoundFn, MG_FLOATS>(r, "Rint");
  AddDeviceUnary<FloorFn, MG_FLOATS>(r, "Floor");
  AddDeviceUnary<CeilFn, MG_FLOATS>(r, "Ceil");
  AddDeviceUnary<RoundFn, MG_FLOATS, int64_t>(r, "Round");
  AddDeviceUnary<IsNanFn, MG_FLOATS>(r, "IsNan");
  AddDeviceUnary<IsInfFn, MG_FLOATS>(r, "IsInf");
  AddDeviceUnary<IsFiniteFn, MG_FLOATS>(r, "IsFinite");
}

}  // namespace monograph::ops::elementwise
