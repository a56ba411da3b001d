// Registers the kernels of parsers_cpu.cc.
#pragma once

#include "executor/kernel.h"

namespace monograph::ops::string {

void RegisterParsers(KernelRegistry* registry);

}  // namespace monograph::ops::string
