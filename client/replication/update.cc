#include "client/replication/update.h"

#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"

namespace monograph::replication {

std::vector<GradientAndVariable> SumGradients(const Draft& draft, size_t copy) {
  std::vector<GradientAndVariable> pairs;
  const std::vector<ModelVariable>& variables = draft.variables[copy];
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!draft.scope.ok()) return pairs;
    const Outputs& parts = draft.towers.gradients[i];
    const Scope beside = draft.scope.ReuseScope("gradients").ColocateWith(variables[i].handle);
    pairs.push_back({parts.size() == 1 ? parts[0] : AddN(beside, parts), {}, variables[i]});
  }
  return pairs;
}

std::vector<GradientAndVariable> GradientsOf(const Draft& draft, size_t replica) {
  std::vector<GradientAndVariable> pairs;
  for (size_t i = 0; i < draft.variables[0].size(); ++i)
    pairs.push_back({draft.towers.gradients[i][replica], {}, draft.variables[0][i]});
  return pairs;
}

ModelVariable MakeGlobalStep(Draft* draft) {
  ModelVariable global_step = monograph::MakeGlobalStep(draft->scope.WithDevice(draft->home));
  draft->initializers.push_back(global_step.initializer);
  return global_step;
}

Output CountUpdate(const Scope& scope, const ModelVariable& global_step, Operation after) {
  if (!scope.ok()) return {};
  return ResourceCountUpTo(
      scope.WithDevice(scope.graph()->device(global_step.handle.node()).ToString())
          .WithControlDependencies({after}),
      global_step.handle, std::numeric_limits<int64_t>::max(), DT_INT64);
}

}  // namespace monograph::replication
