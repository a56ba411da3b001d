#include "ops/rewrites/rewrites.h"

#include <utility>

#include "graph/control_flow.h"
#include "ops/rewrites/fuse.h"
#include "ops/rewrites/fuse_chains.h"
#include "ops/rewrites/group_casts.h"
#include "ops/rewrites/group_updates.h"
#include "ops/rewrites/least_memory.h"

namespace monograph {

Result<Graph> RewriteForExecution(Graph graph) {
  // What is on a branch may need no memory; and the other rewrites are for GPUs, on which there is
  // no control flow so far (CompilePlan).
  if (HasControlFlow(graph)) return FuseOps(graph);
  MG_RETURN_IF_ERROR(CheckLeastMemory(graph));
  MG_ASSIGN_OR_RETURN(graph, GroupUpdates(std::move(graph)));
  MG_ASSIGN_OR_RETURN(graph, FuseOps(graph));
  MG_ASSIGN_OR_RETURN(graph, FuseChains(std::move(graph)));
  return GroupCasts(std::move(graph));
}

}  // namespace monograph
