#include "ops/concat/concat_kernels.h"
#include "ops/gpu/on_host_cuda.h"

namespace monograph::ops::concat {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  const auto add = [&]<typename K>(const char* op, const std::vector<std::string>& host_args) {
    AddForTypes<K>(registry, {.op = op, .device = kGpu, .host_args = host_args}, "T", kDeviceTypes);
  };
  add.operator()<ConcatKernel<DeviceMoves>>("ConcatV2", {"axis"});
  add.operator()<ConcatKernel<DeviceMoves>>("Concat", {"concat_dim"});
  add.operator()<SplitKernel<DeviceMoves>>("Split", {"split_dim"});
  add.operator()<SplitVKernel<DeviceMoves>>("SplitV", {"size_splits", "split_dim"});
  add.operator()<PackKernel<DeviceMoves>>("Pack", {});
  add.operator()<UnpackKernel<DeviceMoves>>("Unpack", {});
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "ConcatOffset");
  for (const char* op : {"Concat", "ConcatV2", "Pack"})
    AddOnHost(registry, cpu, op, {"values", "output"}, "T", kHostInt);
  for (const char* op : {"Split", "SplitV", "Unpack"})
    AddOnHost(registry, cpu, op, {"value", "output"}, "T", kHostInt);
}

}  // namespace monograph::ops::concat
