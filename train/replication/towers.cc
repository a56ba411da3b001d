// Forward and backward of one replica become the body of a function, built once (TowerFunction);
// each replica is a call of it, on its device, with its shard and its views of the variables. So
// the graph grows by a node per replica and not by a model.
#include "train/replication/towers.h"

#include <utility>

#include "graph/tower_function.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/sparse_training/sparse_training.h"

namespace monograph::replication {
namespace {

// The declaration of every variable and part, in order.
std::vector<const Declaration*> ByVariable(const std::vector<Declaration>& declarations) {
  std::vector<const Declaration*> by_variable;
  for (const Declaration& declaration : declarations)
    by_variable.insert(by_variable.end(), static_cast<size_t>(declaration.parts), &declaration);
  return by_variable;
}

// A variable's arguments: its value, its handle, as far as the model asks for them.
Outputs Arguments(const Declaration& declaration, const VariableView& view) {
  Outputs arguments;
  if (declaration.read) arguments.push_back(view.value);
  if (declaration.looked_up) arguments.push_back(view.handle);
  return arguments;
}

// The views inside the body. Rows are read on the variable's device if it is the same for all
// replicas, else each replica has a variable of its own.
std::vector<VariableView> Inside(const std::vector<std::vector<VariableView>>& views,
                                 const std::vector<const Declaration*>& by_variable,
                                 std::span<const Output> arguments) {
  std::vector<VariableView> inside;
  size_t next = 0;
  for (size_t i = 0; i < by_variable.size(); ++i) {
    VariableView view{.shape = views[0][i].shape, .device = views[0][i].device};
    for (const std::vector<VariableView>& replica : views)
      if (replica[i].device != view.device) view.device.clear();
    if (by_variable[i]->read) view.value = arguments[next++];
    if (by_variable[i]->looked_up) view.handle = arguments[next++];
    inside.push_back(std::move(view));
  }
  return inside;
}

// The gradient of one variable from those of its arguments; invalid if none has one.
Gradient Combine(const Scope& body, std::span<const Gradient> gradients,
                 std::span<const Output> arguments) {
  std::vector<Gradient> valid;
  Outputs whole;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].valid()) continue;
    valid.push_back(gradients[i]);
    if (gradients.size() > 1)
      whole.push_back(Densify(body.SubScope("densify"), gradients[i], arguments[i]));
  }
  if (valid.empty()) return {};
  if (whole.empty()) return valid[0].sparse() ? SumRepeatedRows(body, valid[0]) : valid[0];
  return {whole.size() == 1 ? whole[0] : AddN(body, whole)};
}

// One replica, forward and backward, as tensors of the function's body.
struct TowerBody {
  Outputs results;
  std::vector<Gradient> gradients;  // by variable
};
// `args` are the replica's inputs, its weight, and the arguments of the variables.
Result<TowerBody> BuildBody(Scope& body, std::span<const Output> args, size_t inputs,
                            const std::vector<std::vector<VariableView>>& views,
                            const std::vector<Declaration>& declarations, const ModelFn& model,
                            DType gradient_dtype) {
  const std::vector<const Declaration*> by_variable = ByVariable(declarations);
  const std::span<const Output> variables = args.subspan(inputs + 1);
  const std::vector<VariableView> inside = Inside(views, by_variable, variables);
  TowerBody built;
  MG_ASSIGN_OR_RETURN(built.results,
                      BuildModel(body, args.first(inputs), model, declarations, inside));
  const Output loss = built.results[0];
  const Output seed = Cast(body, args[inputs], loss.dtype());
  MG_ASSIGN_OR_RETURN(const std::vector<Gradient> gradients,
                      AddSparseGradients(body, std::span<const Output>(&loss, 1), variables,
                                         std::span<const Output>(&seed, 1)));
  size_t next = 0;
  for (size_t i = 0; i < by_variable.size(); ++i) {
    const size_t count = Arguments(*by_variable[i], inside[i]).size();
    built.gradients.push_back(
        Combine(body, std::span(gradients).subspan(next, count), variables.subspan(next, count)));
    next += count;
    Gradient& gradient = built.gradients.back();
    if (!gradient.valid()) {
      return InvalidArgument("the loss does not depend on variable '" + by_variable[i]->name + "'");
    }
    const DType own = gradient.values.dtype();
    const bool wider = own == DT_FLOAT || own == DT_DOUBLE;
    if (gradient_dtype != DT_INVALID && wider && !gradient.sparse())
      gradient.values = Cast(body.SubScope("narrow"), gradient.values, gradient_dtype);
  }
  return built;
}

// What the function returns: the results of the model, then the values of each gradient and, of
// rows, their indices.
Outputs Returned(const TowerBody& body) {
  Outputs returned = body.results;
  for (const Gradient& gradient : body.gradients) {
    returned.push_back(gradient.values);
    if (gradient.sparse()) returned.push_back(gradient.indices);
  }
  return returned;
}

}  // namespace

Result<Towers> BuildTowers(const Scope& scope, const std::string& name,
                           const std::vector<std::string>& devices, int first_replica,
                           const std::vector<Outputs>& shards, const Outputs& weights,
                           const std::vector<std::vector<VariableView>>& views,
                           const std::vector<Declaration>& declarations, const ModelFn& model,
                           DType gradient_dtype) {
  // Arguments of a replica: its part of the batch, its weight, and the variables.
  const std::vector<const Declaration*> by_variable = ByVariable(declarations);
  std::vector<Outputs> args = shards;
  for (size_t r = 0; r < devices.size(); ++r) {
    args[r].push_back(weights[r]);
    for (size_t i = 0; i < by_variable.size(); ++i) {
      const Outputs own = Arguments(*by_variable[i], views[r][i]);
      args[r].insert(args[r].end(), own.begin(), own.end());
    }
  }
  MG_ASSIGN_OR_RETURN(TowerFunction tower, TowerFunction::Make(scope, name, devices, args));
  const Result<TowerBody> body = BuildBody(tower.body(), tower.args(), shards[0].size(), views,
                                           declarations, model, gradient_dtype);
  MG_ASSIGN_OR_RETURN(
      TowerCalls made,
      tower.Call(body.ok() ? Result<Outputs>(Returned(*body)) : body.status(), first_replica));
  Towers towers;
  towers.calls = std::move(made.calls);
  auto result = made.results.begin() + static_cast<ptrdiff_t>(body->results.size());
  towers.results.assign(made.results.begin(), result);
  for (const Gradient& gradient : body->gradients) {
    std::vector<Gradient>& by_replica = towers.gradients.emplace_back();
    for (const Output& values : *result++) by_replica.push_back({values});
    if (!gradient.sparse()) continue;
    for (size_t r = 0; r < by_replica.size(); ++r) by_replica[r].indices = (*result)[r];
    ++result;
  }
  return towers;
}

}  // namespace monograph::replication
