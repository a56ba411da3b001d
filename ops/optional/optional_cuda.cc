// Optionals of GPUs hold tensors wherever they lie: the kernels are the CPU's.
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::optional {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"OptionalFromValue", "OptionalNone", "OptionalGetValue"})
    AddOnHost(registry, cpu, op);
  AddOnHost(registry, cpu, "OptionalHasValue", {"has_value"});
}

}  // namespace monograph::ops::optional
