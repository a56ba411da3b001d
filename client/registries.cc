#include "client/registries.h"

#include "executor/borrowed.h"
#include "ops/register.h"

namespace monograph {

Registries& DefaultRegistries() {
  static Registries* registries = [] {
    auto* made = new Registries;
    DefineOps(&made->ops);
    RegisterCpuKernels(&made->kernels);
    BorrowFromTensorFlow();
    return made;
  }();
  return *registries;
}

Graph NewGraph() { return Graph(&DefaultRegistries().ops); }

}  // namespace monograph
