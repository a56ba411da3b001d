// Kernels for CPUs in files of their own.
#pragma once

#include "executor/kernel.h"

namespace monograph::ops::variable {

void RegisterScatters(KernelRegistry* registry);       // scatter_cpu.cc
void RegisterStridedAssign(KernelRegistry* registry);  // strided_assign_cpu.cc
void RegisterTemporaries(KernelRegistry* registry);    // temporary_cpu.cc

}  // namespace monograph::ops::variable
