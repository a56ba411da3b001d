// Integers of 8 and 16 bits: images and labels, before they become floats.
#include "ops/elementwise/functors.h"
#include "ops/elementwise/loops_cuda.h"

namespace monograph::ops::elementwise {

void RegisterSmallIntegersCuda(KernelRegistry* r) {
#define MG_SIGNED int8_t, int16_t
#define MG_SMALL MG_SIGNED, uint8_t, uint16_t
  AddDeviceBinary<AddFn, MG_SMALL>(r, "AddV2");
  AddDeviceBinary<AddFn, MG_SMALL>(r, "Add");
  AddDeviceBinary<SubFn, MG_SMALL>(r, "Sub");
  AddDeviceBinary<MulFn, MG_SMALL>(r, "Mul");
  AddDeviceBinary<MaximumFn, MG_SIGNED, uint8_t>(r, "Maximum");
  AddDeviceBinary<MinimumFn, MG_SIGNED, uint8_t>(r, "Minimum");
  AddDeviceBinary<LessFn, MG_SIGNED>(r, "Less");
  AddDeviceBinary<LessEqualFn, MG_SIGNED>(r, "LessEqual");
  AddDeviceBinary<GreaterFn, MG_SIGNED>(r, "Greater");
  AddDeviceBinary<GreaterEqualFn, MG_SIGNED>(r, "GreaterEqual");
  AddDeviceBinary<EqualFn, MG_SIGNED, uint16_t>(r, "Equal");
  AddDeviceBinary<NotEqualFn, MG_SIGNED, uint16_t>(r, "NotEqual");
  AddDeviceUnary<SquareFn, MG_SMALL>(r, "Square");
  AddDeviceUnary<NegFn, MG_SIGNED>(r, "Neg");
  AddDeviceUnary<AbsFn, MG_SIGNED>(r, "Abs");
  AddDeviceUnary<SignFn, MG_SIGNED>(r, "Sign");
}

}  // namespace monograph::ops::elementwise
