// Stacks of GPUs: a stack holds what was pushed wherever that lies, so the kernels are the CPU's.
// swap_memory is not heeded: what is pushed stays in the GPU's memory.
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::stack {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "StackV2", {"max_size"});
  for (const char* op : {"_Stack", "StackCloseV2"}) AddOnHost(registry, cpu, op);
  AddOnHost(registry, cpu, "StackPushV2", {}, "T", kDeviceTypes);
  AddOnHost(registry, cpu, "StackPushV2", {"elem", "output"}, "T", kHostInt);
  AddOnHost(registry, cpu, "StackPopV2", {}, "elem_type", kDeviceTypes);
  AddOnHost(registry, cpu, "StackPopV2", {"elem"}, "elem_type", kHostInt);
}

}  // namespace monograph::ops::stack
