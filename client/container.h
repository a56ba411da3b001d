// Containers: what is not to meet the variables, queues and accumulators of other jobs, or is to be
// dropped by itself (TensorFlow's tf.container).
//
//   ModelVariable w;
//   {
//     const ContainerScope experiment(&graph, "experiment0");
//     w = MakeVariable(scope, "w", initial);
//   }
//   ...
//   session->Reset({"experiment0"});  // drops it on every task, and nothing else
#pragma once

#include <string>
#include <utility>

#include "graph/graph.h"

namespace monograph {

// While it lives, what is added to the graph belongs to the container: every resource that names
// none itself, slots of optimizers too. Scopes may be nested; the inner one counts. The container
// is set when the scope ends: run the new nodes after that. `graph` outlives it; one thread, that
// which builds.
class ContainerScope {
 public:
  ContainerScope(Graph* graph, std::string container)
      : graph_(graph), first_(graph->num_nodes()), container_(std::move(container)) {}
  ~ContainerScope();
  ContainerScope(const ContainerScope&) = delete;
  ContainerScope& operator=(const ContainerScope&) = delete;

 private:
  Graph* const graph_;
  const NodeId first_;
  const std::string container_;
};

}  // namespace monograph
