#include "ops/gpu/on_host_cuda.h"
#include "ops/shape/broadcast_to.h"

namespace monograph::ops::shape {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  AddForTypes<BroadcastToKernel<DeviceMoves>>(
      registry, {.op = "BroadcastTo", .device = kGpu, .host_args = {"shape"}}, "T", kDeviceTypes);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"Shape", "ShapeN", "Size", "Rank", "Reshape", "ExpandDims", "Squeeze",
                         "BroadcastArgs", "BroadcastGradientArgs"})
    AddOnHost(registry, cpu, op);
  AddOnHost(registry, cpu, "Reshape", {"tensor", "output"}, "T", kHostInt);
  for (const char* op : {"ExpandDims", "Squeeze", "BroadcastTo"})
    AddOnHost(registry, cpu, op, {"input", "output"}, "T", kHostInt);
}

}  // namespace monograph::ops::shape
