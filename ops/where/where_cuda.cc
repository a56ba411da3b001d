#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::where {

void RegisterCpu(KernelRegistry* registry);

// The shape of the result depends on values, so that the host has to see them.
void RegisterCuda(KernelRegistry* registry) {
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "Where", {"input", "index"});
}

}  // namespace monograph::ops::where
