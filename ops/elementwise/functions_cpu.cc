#include "ops/elementwise/functors.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {

void RegisterFunctions(KernelRegistry* r) {
#define MG_FLOATS float, double, half, bfloat16
  AddUnary<TanFn, 200, MG_FLOATS>(r, "Tan");
  AddUnary<AsinFn, 200, MG_FLOATS>(r, "Asin");
  AddUnary<AcosFn, 200, MG_FLOATS>(r, "Acos");
  AddUnary<AtanFn, 200, MG_FLOATS>(r, "Atan");
  AddUnary<SinhFn, 300, MG_FLOATS>(r, "Sinh");
  AddUnary<CoshFn, 300, MG_FLOATS>(r, "Cosh");
  AddUnary<AsinhFn, 300, MG_FLOATS>(r, "Asinh");
  AddUnary<AcoshFn, 300, MG_FLOATS>(r, "Acosh");
  AddUnary<AtanhFn, 300, MG_FLOATS>(r, "Atanh");
  AddUnary<Expm1Fn, 200, MG_FLOATS>(r, "Expm1");
  AddUnary<ErfFn, 200, MG_FLOATS>(r, "Erf");
  AddUnary<ErfcFn, 300, MG_FLOATS>(r, "Erfc");
  AddUnary<RoundFn, 2, MG_FLOATS>(r, "Rint");
  AddBinary<TruncateDivFn, 20, CheckDivisor, MG_FLOATS, int32_t, int64_t, uint8_t, int8_t, int16_t,
            uint16_t, uint32_t, uint64_t>(r, "TruncateDiv");
  AddBinary<TruncateModFn, 100, CheckDivisor, MG_FLOATS, int32_t, int64_t>(r, "TruncateMod");
  AddBinary<TruncateModFn, 100, CheckDivisor, MG_FLOATS, int32_t, int64_t>(r, "Mod");
  AddBinary<MulNoNanFn, 3, nullptr, MG_FLOATS>(r, "MulNoNan");
  AddBinary<XlogyFn, 100, nullptr, MG_FLOATS>(r, "Xlogy");
  AddBinary<Xlog1pyFn, 200, nullptr, MG_FLOATS>(r, "Xlog1py");
  AddBinary<XdivyFn, 8, nullptr, MG_FLOATS>(r, "Xdivy");
  AddBinary<Atan2Fn, 400, nullptr, MG_FLOATS>(r, "Atan2");
  AddBinary<NextAfterFn, 100, nullptr, float, double>(r, "NextAfter");
}

}  // namespace monograph::ops::elementwise
