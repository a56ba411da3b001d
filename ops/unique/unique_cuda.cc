#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::unique {

void RegisterCpu(KernelRegistry* registry);

// The shape of a result depends on values, so that the host has to see them.
void RegisterCuda(KernelRegistry* registry) {
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "Unique", {"x", "y", "idx"});
  AddOnHost(registry, cpu, "ListDiff");
}

}  // namespace monograph::ops::unique
