#include "client/registries.h"

#include "ops/fuse.h"
#include "ops/register.h"

namespace monograph {

Registries& DefaultRegistries() {
  static Registries* registries = [] {
    auto* made = new Registries;
    DefineOps(&made->ops);
    RegisterCpuKernels(&made->kernels);
    return made;
  }();
  return *registries;
}

Result<Graph> RewriteForExecution(Graph graph) { return FuseOps(graph, {}, nullptr); }

Graph NewGraph() { return Graph(&DefaultRegistries().ops); }

}  // namespace monograph
