// Kernels of GPU devices that compute on the host: the CPU's own, for what never was worth a trip
// to the GPU. Shapes and handles need no data; int32 is what shapes are computed with, and stays in
// host memory as in TensorFlow.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/kernel.h"

namespace monograph::ops {

// Every kernel of `op` in `cpu` for GPUs in `gpu`, with the host arguments that it names and those
// given here. With `type_attr` only those for the types given; kernels that do not distinguish it
// come before those of `gpu` that do not either. A bug if there is none.
void AddOnHost(KernelRegistry* gpu, const KernelRegistry& cpu, std::string_view op,
               const std::vector<std::string>& host_args = {}, const std::string& type_attr = "",
               std::span<const DType> types = {});

}  // namespace monograph::ops
