#include "ops/elementwise/functors.h"
#include "ops/elementwise/loops_cuda.h"

namespace monograph::ops::elementwise {

void RegisterComparisonsCuda(KernelRegistry* r) {
#define MG_TYPES float, double, half, bfloat16, int64_t, uint8_t
  AddDeviceBinary<EqualFn, MG_TYPES, bool>(r, "Equal");
  AddDeviceBinary<NotEqualFn, MG_TYPES, bool>(r, "NotEqual");
  AddDeviceBinary<LessFn, MG_TYPES>(r, "Less");
  AddDeviceBinary<LessEqualFn, MG_TYPES>(r, "LessEqual");
  AddDeviceBinary<GreaterFn, MG_TYPES>(r, "Greater");
  AddDeviceBinary<GreaterEqualFn, MG_TYPES>(r, "GreaterEqual");
  r->Add({.op = "LogicalAnd", .device = kGpu}, &MakeDeviceBinary<LogicalAndFn, bool>);
  r->Add({.op = "LogicalOr", .device = kGpu}, &MakeDeviceBinary<LogicalOrFn, bool>);
  r->Add({.op = "LogicalNot", .device = kGpu}, &MakeDeviceUnary<LogicalNotFn, bool>);
}

}  // namespace monograph::ops::elementwise
