#include "executor/gpu/default_plugin.h"

namespace monograph {

std::vector<std::string> DefaultCudaPlugins() { return {}; }

}  // namespace monograph
