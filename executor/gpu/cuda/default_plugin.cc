#include "executor/gpu/default_plugin.h"

namespace monograph {

// Beside the program first, so that a tree that was moved uses its own.
std::vector<std::string> DefaultCudaPlugins() {
  return {MG_CUDA_PLUGIN_RELATIVE, MG_CUDA_PLUGIN_INSTALLED};
}

}  // namespace monograph
