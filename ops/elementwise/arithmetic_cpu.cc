#include "ops/elementwise/functors.h"
#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {

void RegisterArithmetic(KernelRegistry* r) {
#define MG_WIDE float, double, half, bfloat16, int32_t, int64_t, uint8_t, int8_t, int16_t, uint16_t
#define MG_REAL float, double, half, bfloat16, int32_t, int64_t
#define MG_FLOATS float, double, half, bfloat16
  AddBinary<AddFn, 3, nullptr, MG_WIDE>(r, "AddV2");
  AddBinary<AddFn, 3, nullptr, MG_WIDE>(r, "Add");
  AddBinary<SubFn, 3, nullptr, MG_WIDE>(r, "Sub");
  AddBinary<MulFn, 3, nullptr, MG_WIDE>(r, "Mul");
  AddBinary<MaximumFn, 3, nullptr, MG_REAL, uint8_t, int8_t, int16_t>(r, "Maximum");
  AddBinary<MinimumFn, 3, nullptr, MG_REAL, uint8_t, int8_t, int16_t>(r, "Minimum");
  AddBinary<SquaredDifferenceFn, 4, nullptr, MG_REAL>(r, "SquaredDifference");
  AddBinary<SigmoidGradFn, 4, nullptr, MG_FLOATS>(r, "SigmoidGrad");
  AddBinary<TanhGradFn, 4, nullptr, MG_FLOATS>(r, "TanhGrad");
  AddBinary<SqrtGradFn, 8, nullptr, MG_FLOATS>(r, "SqrtGrad");
  AddBinary<RsqrtGradFn, 4, nullptr, MG_FLOATS>(r, "RsqrtGrad");
  AddBinary<ReciprocalGradFn, 4, nullptr, MG_FLOATS>(r, "ReciprocalGrad");
  AddBinary<ReciprocalGradFn, 4, nullptr, MG_FLOATS>(r, "InvGrad");
}

}  // namespace monograph::ops::elementwise
