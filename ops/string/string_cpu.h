// Kernels on strings that have sources of their own.
#pragma once

#include "executor/kernel.h"

namespace monograph::ops::string {

void RegisterHashes(KernelRegistry* registry);        // hash_cpu.cc
void RegisterReplacements(KernelRegistry* registry);  // replace_cpu.cc

}  // namespace monograph::ops::string
