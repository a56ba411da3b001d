#include "client/replication/towers.h"

#include <utility>

#include "graph/gradients.h"
#include "ops/cast/cast.h"

namespace monograph::replication {
namespace {

std::string NameOfPart(const std::vector<Declaration>& declarations, size_t index) {
  for (const Declaration& declaration : declarations) {
    if (index < static_cast<size_t>(declaration.parts)) return declaration.name;
    index -= static_cast<size_t>(declaration.parts);
  }
  return "?";
}

}  // namespace

Result<Towers> BuildTowers(const Scope& scope, const std::string& name,
                           const std::vector<std::string>& devices, int first_replica,
                           const std::vector<Outputs>& shards, const Outputs& weights,
                           const std::vector<Outputs>& values,
                           const std::vector<Declaration>& declarations, const ModelFn& model) {
  // Arguments of a replica: its part of the batch, its weight, and the variables' values.
  std::vector<Outputs> args(devices.size());
  for (size_t r = 0; r < devices.size(); ++r) {
    args[r] = shards[r];
    args[r].push_back(weights[r]);
    args[r].insert(args[r].end(), values[r].begin(), values[r].end());
  }
  const size_t inputs = shards[0].size();
  size_t num_results = 0;
  auto tower = [&](Scope& body, std::span<const Output> arguments) -> Result<Outputs> {
    const Output weight = arguments[inputs];
    const std::span<const Output> variables = arguments.subspan(inputs + 1);
    MG_ASSIGN_OR_RETURN(Outputs results, BuildModel(body, arguments.first(inputs), model,
                                                    declarations, variables));
    num_results = results.size();
    const Output loss = results[0];
    const Output seed = Cast(body, weight, loss.dtype());
    MG_ASSIGN_OR_RETURN(const Outputs gradients,
                        AddGradients(body, std::span<const Output>(&loss, 1), variables,
                                     std::span<const Output>(&seed, 1)));
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].valid()) {
        return InvalidArgument("the loss does not depend on variable '" +
                               NameOfPart(declarations, i) + "'");
      }
      results.push_back(gradients[i]);
    }
    return results;
  };
  MG_ASSIGN_OR_RETURN(ReplicatedTower calls,
                      ReplicateTower(scope, name, devices, args, tower, first_replica));
  Towers towers;
  towers.calls = std::move(calls.calls);
  const auto first_gradient = calls.results.begin() + static_cast<ptrdiff_t>(num_results);
  towers.results.assign(calls.results.begin(), first_gradient);
  towers.gradients.assign(first_gradient, calls.results.end());
  return towers;
}

}  // namespace monograph::replication
