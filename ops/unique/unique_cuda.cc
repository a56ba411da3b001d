#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::unique {

void RegisterCpu(KernelRegistry* registry);

// The shape of a result depends on values, so that the host has to see them.
void RegisterCuda(KernelRegistry* registry) {
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  constexpr DType kTypes[] = {DT_FLOAT,  DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32,
                              DT_INT64,  DT_UINT8,  DT_INT8, DT_INT16,    DT_UINT16,
                              DT_UINT32, DT_UINT64, DT_BOOL};
  AddOnHost(registry, cpu, "Unique", {"x", "y", "idx"}, "T", kTypes);
  AddOnHost(registry, cpu, "ListDiff", {"x", "y", "out", "idx"}, "T", kTypes);
}

}  // namespace monograph::ops::unique
