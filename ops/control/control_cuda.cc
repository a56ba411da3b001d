#include "graph/structural_ops.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::control {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "NoOp");
  // These fail the step by a value, which the host has to see.
  AddOnHost(registry, cpu, "Assert", {"condition", "data"});
  AddOnHost(registry, cpu, "CheckNumerics", {"tensor", "output"});
  AddOnHost(registry, cpu, std::string(kRecursionEndOp), {"input", "output"});
  for (const char* op : {"Identity", "IdentityN", "StopGradient", "PreventGradient"})
    AddOnHost(registry, cpu, op);
  for (const char* op : {"Identity", "StopGradient", "PreventGradient"})
    AddOnHost(registry, cpu, op, {"input", "output"}, "T", kHostInt);
}

}  // namespace monograph::ops::control
