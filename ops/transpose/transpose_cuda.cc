#include "ops/gpu/on_host_cuda.h"
#include "ops/transpose/transpose_kernels.h"

namespace monograph::ops::transpose {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  AddForTypes<TransposeKernel<DeviceMoves>>(
      registry, {.op = "Transpose", .device = kGpu, .host_args = {"perm"}}, "T", kDeviceTypes);
  AddForTypes<TransposeKernel<DeviceMoves>>(
      registry, {.op = "ConjugateTranspose", .device = kGpu, .host_args = {"perm"}}, "T",
      kDeviceTypes);
  AddForTypes<ReverseKernel<DeviceMoves>>(
      registry, {.op = "ReverseV2", .device = kGpu, .host_args = {"axis"}}, "T", kDeviceTypes);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "Transpose", {"x", "y"}, "T", kHostInt);
  AddOnHost(registry, cpu, "ConjugateTranspose", {"x", "y"}, "T", kHostInt);
  AddOnHost(registry, cpu, "ReverseV2", {"tensor", "output"}, "T", kHostInt);
  AddOnHost(registry, cpu, "InvertPermutation");
}

}  // namespace monograph::ops::transpose
