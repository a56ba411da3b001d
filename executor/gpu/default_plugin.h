// Where this build's CUDA plug-in lies: cuda/ or no_cuda/ supplies it.
#pragma once

#include <string>
#include <vector>

namespace monograph {

// Paths in order of preference; those that do not start with "/" are relative to the program's
// folder. Empty: this build has none.
std::vector<std::string> DefaultCudaPlugins();

}  // namespace monograph
