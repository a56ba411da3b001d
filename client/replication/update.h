// How gradients become an update: one file per way that they meet.
#pragma once

#include <string>
#include <vector>

#include "client/replication/towers.h"

namespace monograph::replication {

// The step as far as it is built.
struct Draft {
  Scope scope;
  const ReplicateOptions& options;
  const Optimizer& optimizer;
  std::vector<std::string> devices;                   // by replica
  std::vector<std::vector<ModelVariable>> variables;  // [copy]; one unless replicated
  Towers towers;
  std::vector<Operation> initializers;
  std::string home;  // of global_step and what else belongs to no variable
};

// The sum of all replicas' gradients, in order of replicas, beside each variable of copy `copy`.
std::vector<GradientAndVariable> SumGradients(const Draft& draft, size_t copy = 0);
// The gradients of one replica alone.
std::vector<GradientAndVariable> GradientsOf(const Draft& draft, size_t replica);

// global_step, on draft.home.
ModelVariable MakeGlobalStep(Draft* draft);
// Counts one update once `after` has run; the count before.
Output CountUpdate(const Scope& scope, const ModelVariable& global_step, Operation after);

}  // namespace monograph::replication
