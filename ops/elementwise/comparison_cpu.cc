#include "ops/elementwise/functors.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {

void RegisterComparisons(KernelRegistry* r) {
  AddBinary<EqualFn, 3, nullptr, float, double, half, bfloat16, int32_t, int64_t, uint8_t, int8_t,
            int16_t, uint16_t, bool>(r, "Equal");
  AddBinary<NotEqualFn, 3, nullptr, float, double, half, bfloat16, int32_t, int64_t, uint8_t,
            int8_t, int16_t, uint16_t, bool>(r, "NotEqual");
#define MG_TYPES float, double, half, bfloat16, int32_t, int64_t, uint8_t, int8_t, int16_t
  AddBinary<LessFn, 3, nullptr, MG_TYPES>(r, "Less");
  AddBinary<LessEqualFn, 3, nullptr, MG_TYPES>(r, "LessEqual");
  AddBinary<GreaterFn, 3, nullptr, MG_TYPES>(r, "Greater");
  AddBinary<GreaterEqualFn, 3, nullptr, MG_TYPES>(r, "GreaterEqual");
  r->Add({.op = "LogicalAnd"}, &MakeBinary<BinaryRowFor<LogicalAndFn, bool>(), 2, nullptr>);
  r->Add({.op = "LogicalOr"}, &MakeBinary<BinaryRowFor<LogicalOrFn, bool>(), 2, nullptr>);
}

}  // namespace monograph::ops::elementwise
