// PtxOfFatbin: the PTX that nvcc has put into an object beside the machine code.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace monograph::ptx {

// `fatbin` points to the container, as cuModuleLoadFatBinary takes it. Empty: there is machine code
// only. Compressed texts need libzstd.so.1, which is opened here.
Result<std::vector<std::string>> PtxOfFatbin(const void* fatbin);

}  // namespace monograph::ptx
