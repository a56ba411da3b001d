#include "train/collections.h"

#include <set>
#include <utility>

#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"

namespace monograph {

void Collections::Add(std::string_view collection, Item item) {
  auto found = items_.find(collection);
  if (found == items_.end()) found = items_.emplace(collection, std::vector<Item>()).first;
  found->second.push_back(std::move(item));
}

const std::vector<Collections::Item>& Collections::Items(std::string_view collection) const {
  static const std::vector<Item> none;
  const auto found = items_.find(collection);
  return found == items_.end() ? none : found->second;
}

std::vector<std::string> Collections::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, items] : items_) names.push_back(name);
  return names;
}

void Collections::Clear(std::string_view collection) {
  const auto found = items_.find(collection);
  if (found != items_.end()) items_.erase(found);
}

std::string Collections::NameOf(const Item& item) {
  if (const auto* output = std::get_if<Output>(&item))
    return output->valid() ? output->name() : std::string();
  if (const auto* operation = std::get_if<Operation>(&item))
    return operation->valid() ? std::string(operation->name()) : std::string();
  if (const auto* variable = std::get_if<ModelVariable>(&item)) return variable->name;
  return std::get<std::string>(item);
}

std::vector<ModelVariable> GlobalVariables(const Collections& collections) {
  return collections.Get<ModelVariable>(GraphKeys::kGlobalVariables);
}

std::vector<ModelVariable> TrainableVariables(const Collections& collections,
                                              std::string_view scope) {
  return collections.Get<ModelVariable>(GraphKeys::kTrainableVariables, scope);
}

Operation GlobalVariablesInitializer(const Scope& scope, const Collections& collections) {
  if (!scope.ok()) return {};
  std::vector<Operation> initializers;
  std::set<Endpoint> done;  // handles whose initializers are listed, or that are not global
  for (const ModelVariable& variable : GlobalVariables(collections)) {
    initializers.push_back(variable.initializer);
    done.insert(variable.handle.endpoint);
  }
  for (const std::string& name : collections.Names()) {
    for (const ModelVariable& variable : collections.Get<ModelVariable>(name))
      done.insert(variable.handle.endpoint);
  }
  const Graph& graph = *scope.graph();
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    if (!graph.is(id, "AssignVariableOp")) continue;
    const Endpoint handle = graph.inputs(id)[0];
    if (graph.is(handle.node, "VarHandleOp") && done.insert(handle).second)
      initializers.push_back({scope.graph(), id});
  }
  return Group(scope.WithOpName("init"), initializers);
}

Output RegularizationLoss(const Scope& scope, const Collections& collections) {
  const Outputs losses = collections.Get<Output>(GraphKeys::kRegularizationLosses);
  if (losses.empty()) return Const(scope.WithOpName("total_regularization_loss"), 0.0f);
  return AddN(scope.WithOpName("total_regularization_loss"), losses);
}

}  // namespace monograph
