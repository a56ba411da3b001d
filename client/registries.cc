#include "client/registries.h"

#include <utility>

#include "ops/fuse.h"
#include "ops/fuse_chains.h"
#include "ops/group_casts.h"
#include "ops/group_updates.h"
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

Result<Graph> RewriteForExecution(Graph graph) {
  MG_ASSIGN_OR_RETURN(graph, GroupUpdates(std::move(graph), {}, nullptr));
  MG_ASSIGN_OR_RETURN(graph, FuseOps(graph, {}, nullptr));
  MG_ASSIGN_OR_RETURN(graph, FuseChains(std::move(graph), {}, nullptr));
  return GroupCasts(std::move(graph), {}, nullptr);
}

Graph NewGraph() { return Graph(&DefaultRegistries().ops); }

}  // namespace monograph
