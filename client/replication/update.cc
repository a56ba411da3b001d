#include "client/replication/update.h"

#include <limits>

#include "ops/concat/concat.h"
#include "ops/elementwise/elementwise.h"
#include "ops/sparse_training/sparse_training.h"
#include "ops/variable/variable.h"

namespace monograph::replication {

namespace {

// The sum of all replicas' gradients, in their order, beside the variable.
Gradient Sum(const Scope& beside, const std::vector<Gradient>& parts) {
  if (parts.size() == 1) return parts[0];
  Outputs values, indices;
  for (const Gradient& part : parts) {
    values.push_back(part.values);
    if (part.sparse()) indices.push_back(part.indices);
  }
  if (indices.empty()) return {AddN(beside, values)};
  return SumRepeatedRows(beside, {Concat(beside, values, 0), Concat(beside, indices, 0)});
}

}  // namespace

std::vector<GradientAndVariable> SumGradients(const Draft& draft, size_t copy) {
  std::vector<GradientAndVariable> pairs;
  const std::vector<ModelVariable>& variables = draft.variables[copy];
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!draft.scope.ok()) return pairs;
    const Scope beside = draft.scope.ReuseScope("gradients").ColocateWith(variables[i].handle);
    const Gradient sum = Sum(beside, draft.towers.gradients[i]);
    pairs.push_back({sum.values, sum.indices, variables[i]});
  }
  return pairs;
}

std::vector<GradientAndVariable> GradientsOf(const Draft& draft, size_t replica) {
  std::vector<GradientAndVariable> pairs;
  for (size_t i = 0; i < draft.variables[0].size(); ++i) {
    const Gradient& gradient = draft.towers.gradients[i][replica];
    pairs.push_back({gradient.values, gradient.indices, draft.variables[0][i]});
  }
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
