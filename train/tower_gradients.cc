#include "train/tower_gradients.h"

#include <string>

#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"

namespace monograph {
namespace {

Status CheckTowers(const std::vector<std::vector<GradientAndVariable>>& towers) {
  if (towers.empty()) return InvalidArgument("AverageGradients: no towers");
  for (size_t t = 1; t < towers.size(); ++t) {
    const std::string tower = "AverageGradients: tower " + std::to_string(t);
    if (towers[t].size() != towers[0].size()) {
      return InvalidArgument(tower + " has " + std::to_string(towers[t].size()) +
                             " gradients, tower 0 has " + std::to_string(towers[0].size()));
    }
    for (size_t i = 0; i < towers[t].size(); ++i) {
      if (towers[t][i].variable.handle == towers[0][i].variable.handle) continue;
      return InvalidArgument(tower + " has the gradient of variable '" +
                             towers[t][i].variable.name + "' where tower 0 has that of '" +
                             towers[0][i].variable.name + "': towers must share their variables");
    }
  }
  return Status();
}

}  // namespace

Result<std::vector<GradientAndVariable>> AverageGradients(
    const Scope& scope, const std::vector<std::vector<GradientAndVariable>>& towers) {
  MG_RETURN_IF_ERROR(scope.status());
  MG_RETURN_IF_ERROR(CheckTowers(towers));
  if (towers.size() == 1) return towers[0];
  const Scope average = scope.SubScope("average_gradients");
  std::vector<GradientAndVariable> means;
  for (size_t i = 0; i < towers[0].size(); ++i) {
    GradientAndVariable mean = towers[0][i];
    const Scope beside = average.ColocateWith(mean.variable.handle);
    Outputs gradients, indices;
    for (const std::vector<GradientAndVariable>& tower : towers) {
      if (!tower[i].gradient.valid()) continue;
      gradients.push_back(tower[i].gradient);
      if (tower[i].sparse()) indices.push_back(tower[i].indices);
    }
    if (!gradients.empty()) {
      if (!indices.empty() && indices.size() != gradients.size()) {
        return InvalidArgument("AverageGradients: the gradient of variable '" + mean.variable.name +
                               "' is sparse in some towers and dense in others");
      }
      const bool sparse = !indices.empty(), one = gradients.size() == 1;
      mean.indices = !sparse ? Output() : one ? indices[0] : Concat(beside, indices, 0);
      const Output sum = one      ? gradients[0]
                         : sparse ? Concat(beside, gradients, 0)
                                  : AddN(beside, gradients);
      MG_RETURN_IF_ERROR(scope.status());
      mean.gradient = RealDiv(beside, sum,
                              ScalarConst(beside, static_cast<double>(towers.size()), sum.dtype()));
      MG_RETURN_IF_ERROR(scope.status());
    }
    means.push_back(std::move(mean));
  }
  return means;
}

}  // namespace monograph
