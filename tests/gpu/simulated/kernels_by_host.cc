// The kernels by the host's compiler, for simulated_gpu.h.
#include "ops/register.h"
#include "tests/gpu/simulated/simulated_gpu.h"

namespace monograph {

// Those of ops/CMakeLists.txt's lines with CUDA; cuBLASLt and cuDNN refuse everything
// (no_libraries.cc).
void RegisterSimulatedKernels(KernelRegistry* registry);

namespace optest {

const KernelRegistry& SimulatedKernels() {
  static const KernelRegistry* const kernels = [] {
    auto* registry = new KernelRegistry;
    RegisterSimulatedKernels(registry);
    return registry;
  }();
  return *kernels;
}

DeviceStream* SimulatedMemory::stream() { return nullptr; }

Status CanSimulate() { return Status(); }

bool HasOwnFunctions() { return false; }

}  // namespace optest
}  // namespace monograph
