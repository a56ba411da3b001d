#include "ops/gpu/on_host_cuda.h"
#include "ops/slice/slice_kernels.h"

namespace monograph::ops::slice {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  const auto add = [&]<typename K>(const char* op, const std::vector<std::string>& host_args) {
    AddForTypes<K>(registry, {.op = op, .device = kGpu, .host_args = host_args}, "T", kDeviceTypes);
  };
  add.operator()<SliceKernel<DeviceMoves>>("Slice", {"begin", "size"});
  add.operator()<StridedSliceKernel<DeviceMoves>>("StridedSlice", {"begin", "end", "strides"});
  add.operator()<StridedSliceGradKernel<DeviceMoves>>("StridedSliceGrad",
                                                      {"shape", "begin", "end", "strides"});
  add.operator()<TileKernel<DeviceMoves>>("Tile", {"multiples"});
  add.operator()<PadKernel<DeviceMoves>>("Pad", {"paddings"});
  add.operator()<PadKernel<DeviceMoves>>("PadV2", {"paddings", "constant_values"});
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"Slice", "StridedSlice", "Tile", "Pad", "PadV2"})
    AddOnHost(registry, cpu, op, {"input", "output"}, "T", kHostInt);
  AddOnHost(registry, cpu, "StridedSliceGrad", {"dy", "output"}, "T", kHostInt);
}

}  // namespace monograph::ops::slice
