#include "ops/slice/slice_kernels.h"

namespace monograph::ops::slice {

void RegisterCpu(KernelRegistry* registry) {
  AddForPlainTypes<SliceKernel<HostMoves>>(registry,
                                           {.op = "Slice", .host_args = {"begin", "size"}});
  AddForPlainTypes<StridedSliceKernel<HostMoves>>(
      registry, {.op = "StridedSlice", .host_args = {"begin", "end", "strides"}});
  AddForPlainTypes<StridedSliceGradKernel<HostMoves>>(
      registry, {.op = "StridedSliceGrad", .host_args = {"shape", "begin", "end", "strides"}});
  AddForPlainTypes<StridedSliceUpdateKernel<HostMoves>>(
      registry, {.op = "TensorStridedSliceUpdate", .host_args = {"begin", "end", "strides"}});
  AddForPlainTypes<TileKernel<HostMoves>>(registry, {.op = "Tile", .host_args = {"multiples"}});
  AddForPlainTypes<PadKernel<HostMoves>>(registry, {.op = "Pad", .host_args = {"paddings"}});
  AddForPlainTypes<PadKernel<HostMoves>>(
      registry, {.op = "PadV2", .host_args = {"paddings", "constant_values"}});
}

}  // namespace monograph::ops::slice
