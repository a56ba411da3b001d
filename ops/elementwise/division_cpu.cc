#include "ops/elementwise/functors.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {

void RegisterDivision(KernelRegistry* r) {
  AddBinary<DivFn, 8, CheckDivisor, float, double, half, bfloat16, int32_t, int64_t, uint8_t,
            int8_t, int16_t, uint16_t>(r, "Div");
  AddBinary<DivFn, 8, nullptr, float, double, half, bfloat16>(r, "RealDiv");
  AddBinary<FloorDivFn, 20, CheckDivisor, float, double, half, bfloat16, int32_t, int64_t, uint8_t,
            int8_t, int16_t, uint16_t>(r, "FloorDiv");
  AddBinary<FloorModFn, 100, CheckDivisor, float, double, half, bfloat16, int32_t, int64_t, uint8_t,
            int8_t, int16_t, uint16_t>(r, "FloorMod");
  AddBinary<DivNoNanFn, 8, nullptr, float, double, half, bfloat16>(r, "DivNoNan");
  AddBinary<PowFn, 300, CheckExponent, float, double, half, bfloat16, int32_t, int64_t>(r, "Pow");
}

}  // namespace monograph::ops::elementwise
