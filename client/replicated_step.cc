#include "client/replicated_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/gradients.h"
#include "graph/replicate.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

struct Declaration {
  std::string name;
  Shape shape;
  Initial initial;
  DType dtype;
};

// Hands out one tensor per name; a name that is new gets it from `make`.
class NamedVariables : public ModelVariables {
 public:
  using Make = std::function<Output(const Declaration&)>;
  NamedVariables(const Scope& scope, Make make) : scope_(scope), make_(std::move(make)) {}

  Output Get(const std::string& name, const Shape& shape, const Initial& initial, DType dtype) override {
    auto it = known_.find(name);
    if (it == known_.end()) {
      it = known_.emplace(name, std::make_pair(shape, make_({name, shape, initial, dtype}))).first;
    } else if (!(it->second.first == shape)) {
      scope_.Fail(FailedPrecondition("variable '" + name + "' is wanted with shape " + shape.ToString() + " and with shape " +
                                     it->second.first.ToString()));
      return {};
    }
    return it->second.second;
  }

 private:
  Scope scope_;
  Make make_;
  std::map<std::string, std::pair<Shape, Output>> known_;
};

// Learns which variables the model asks for, by building it once in a graph of no further use.
Result<std::vector<Declaration>> Declare(const Scope& scope, const Outputs& batch, const ModelFn& model) {
  Graph scratch(&scope.graph()->registry());
  Scope tower(&scratch);
  Outputs inputs;
  for (const Output& input : batch) {
    PartialShape shape = input.shape();
    if (shape.known_rank() && shape.rank() > 0) shape.set_dim(0, -1);
    inputs.push_back(Placeholder(tower, input.dtype(), shape));
  }
  std::vector<Declaration> declarations;
  NamedVariables variables(tower, [&](const Declaration& declaration) {
    declarations.push_back(declaration);
    return Placeholder(tower.WithOpName(declaration.name), declaration.dtype, declaration.shape);
  });
  MG_ASSIGN_OR_RETURN(const Outputs results, model(tower, inputs, variables));
  MG_RETURN_IF_ERROR(tower.status());
  if (results.empty()) return InvalidArgument("the model returned no loss");
  for (const Output& result : results) {
    if (!result.valid() || (result.shape().known_rank() && result.shape().rank() != 0)) {
      return InvalidArgument("the model must return scalars (means over its examples), not " +
                             (result.valid() ? result.name() + " of shape " + result.shape().ToString() : std::string("nothing")));
    }
  }
  return declarations;
}

Output InitialValue(const Scope& scope, const Declaration& declaration) {
  const Scope inner = scope.ReuseScope(declaration.name + "/Initializer");
  switch (declaration.initial.kind) {
    case Initial::Kind::kConstant: {
      const Output value = ScalarConst(inner, declaration.initial.parameter, declaration.dtype);
      return Fill(inner, IntsConst(inner, declaration.shape.dims()), value);
    }
    case Initial::Kind::kTruncatedNormal: {
      const Output normal = TruncatedNormal(inner.WithOpName("truncated_normal"), IntsConst(inner, declaration.shape.dims()), declaration.dtype);
      return Mul(inner, normal, ScalarConst(inner, declaration.initial.parameter, declaration.dtype));
    }
    case Initial::Kind::kValue: return Const(inner, declaration.initial.value);
  }
  return {};
}

// The step over a batch that is cut already.
Result<ReplicatedStep> ReplicateOver(const Scope& scope, const std::vector<std::string>& devices, BatchShards split,
                                     const ModelFn& model, const Optimizer& optimizer, const ReplicateOptions& options) {
  const Outputs& batch = split.shards[0];
  MG_ASSIGN_OR_RETURN(const std::vector<Declaration> declarations, Declare(scope, batch, model));

  ReplicatedStep step;
  std::vector<Operation> initializers;
  const std::vector<std::string> homes =
      options.variable_devices.empty() ? std::vector<std::string>{devices[0]} : options.variable_devices;
  std::vector<int64_t> load(homes.size());
  for (size_t i = 0; i < declarations.size(); ++i) {
    const Declaration& declaration = declarations[i];
    const size_t home = options.strategy == ReplicateOptions::Strategy::kRoundRobin
                            ? i % homes.size()
                            : static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[home] += declaration.shape.elements() * static_cast<int64_t>(DTypeSize(declaration.dtype));
    const Scope place = scope.WithDevice(homes[home]);
    step.variables.push_back(MakeVariable(place, declaration.name, InitialValue(place, declaration)));
    MG_RETURN_IF_ERROR(scope.status());
    initializers.push_back(step.variables.back().initializer);
  }

  const size_t replicas = devices.size();
  const bool even = split.weights.empty();
  if (even) {
    for (const std::string& device : devices) {
      split.weights.push_back(Const(scope.SubScope("weights").WithDevice(device), 1.0f / static_cast<float>(replicas)));
    }
  }

  // Arguments of a tower: its shard, its weight in the mean, and the variables' values.
  std::vector<std::vector<Output>> args(devices.size());
  for (size_t replica = 0; replica < devices.size(); ++replica) {
    args[replica] = split.shards[replica];
    args[replica].push_back(split.weights[replica]);
    for (const ModelVariable& variable : step.variables) args[replica].push_back(variable.value);
  }
  size_t num_results = 0;
  auto tower = [&](Scope& body, std::span<const Output> arguments) -> Result<Outputs> {
    const std::span<const Output> shard = arguments.first(batch.size());
    const Output weight = arguments[batch.size()];
    const std::span<const Output> values = arguments.subspan(batch.size() + 1);
    NamedVariables variables(body, [&](const Declaration& declaration) {
      for (size_t i = 0; i < declarations.size(); ++i) {
        if (declarations[i].name == declaration.name) return values[i];
      }
      body.Fail(FailedPrecondition("the model asks for variable '" + declaration.name + "' in one replica only"));
      return Output();
    });
    MG_ASSIGN_OR_RETURN(Outputs results, model(body, shard, variables));
    MG_RETURN_IF_ERROR(body.status());
    num_results = results.size();
    const Output loss = results[0];
    // The replica's part of the gradient of the whole batch's mean: weighting the loss's gradient costs one scalar product.
    const Output seed = Cast(body, weight, loss.dtype());
    MG_ASSIGN_OR_RETURN(const Outputs gradients, AddGradients(body, std::span<const Output>(&loss, 1), values, std::span<const Output>(&seed, 1)));
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].valid()) {
        return InvalidArgument("the loss does not depend on variable '" + declarations[i].name + "'");
      }
      results.push_back(gradients[i]);
    }
    return results;
  };
  MG_ASSIGN_OR_RETURN(const ReplicatedTower towers, ReplicateTower(scope, options.tower_name, devices, args, tower));

  const Scope mean = scope.SubScope("mean");
  for (size_t i = 0; i < num_results; ++i) {
    MG_ASSIGN_OR_RETURN(const Output value, WeightedMean(mean, towers.results[i], even ? Outputs() : split.weights));
    step.results.push_back(value);
  }
  step.tower_results = towers.results[0];
  std::vector<GradientAndVariable> pairs;
  for (size_t i = 0; i < step.variables.size(); ++i) {
    const Outputs& parts = towers.results[num_results + i];
    const Scope beside = scope.SubScope("gradients").ColocateWith(step.variables[i].handle);
    pairs.push_back({replicas == 1 ? parts[0] : AddN(beside, parts), {}, step.variables[i]});
  }
  const Operation update = optimizer.ApplyGradients(scope, pairs, &initializers);

  const Scope first_home = scope.WithDevice(homes[0]);
  step.global_step = MakeVariable(first_home, "global_step", Const(first_home, int64_t{0}));
  initializers.push_back(step.global_step.initializer);
  MG_RETURN_IF_ERROR(scope.status());
  step.train = AssignAddVariable(first_home.WithOpName("train").WithControlDependencies({update}), step.global_step.handle,
                                 Const(first_home, int64_t{1}));
  step.init = Group(scope.WithOpName("init"), initializers);
  MG_RETURN_IF_ERROR(scope.status());
  return step;
}

}  // namespace

Result<ReplicatedStep> Replicate(const Scope& scope, const std::vector<std::string>& devices, const Outputs& batch,
                                 const ModelFn& model, const Optimizer& optimizer, const ReplicateOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  if (devices.empty()) return InvalidArgument("no devices to replicate over");
  // The batch is cut where it is fed, in the client: each replica's rows then travel once, straight to it.
  MG_ASSIGN_OR_RETURN(const DeviceName first_device, DeviceName::Parse(devices[0]));
  const bool on_cluster = !first_device.job.empty() && first_device.job != "localhost";
  const Scope at_client = on_cluster ? scope.WithDevice("/job:client/replica:0/task:0/device:CPU:0") : scope;
  MG_ASSIGN_OR_RETURN(BatchShards split, SplitBatch(at_client, batch, static_cast<int>(devices.size())));
  return ReplicateOver(scope, devices, std::move(split), model, optimizer, options);
}

Result<ReplicatedStep> ReplicateShards(const Scope& scope, const std::vector<std::string>& devices,
                                       const std::vector<Outputs>& shards, const ModelFn& model,
                                       const Optimizer& optimizer, const ReplicateOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  if (devices.empty()) return InvalidArgument("no devices to replicate over");
  if (shards.size() != devices.size()) {
    return InvalidArgument(std::to_string(shards.size()) + " shards for " + std::to_string(devices.size()) + " devices");
  }
  std::vector<int64_t> rows;
  int64_t total = 0;
  for (const Outputs& shard : shards) {
    for (const Output& input : shard) {
      if (!input.valid()) return InvalidArgument("an input of shard " + std::to_string(rows.size()) + " is not a tensor");
      const PartialShape& shape = input.shape();
      const bool known = shape.known_rank() && shape.rank() > 0 && shape.dim(0) > 0;
      if (!known || shape.dim(0) != shard[0].shape().dim(0)) {
        return InvalidArgument("input '" + input.name() + "' of shard " + std::to_string(rows.size()) + " has shape " + shape.ToString() +
                               "; the inputs of a shard need the same known number of examples");
      }
    }
    if (shard.empty() || shard.size() != shards[0].size()) return InvalidArgument("all shards need the same inputs, at least one");
    rows.push_back(shard[0].shape().dim(0));
    total += rows.back();
  }
  BatchShards split{.shards = shards, .weights = {}};
  if (std::any_of(rows.begin(), rows.end(), [&](int64_t count) { return count != rows[0]; })) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const Scope place = scope.SubScope("weights").WithDevice(devices[i]);
      split.weights.push_back(Const(place, static_cast<float>(rows[i]) / static_cast<float>(total)));
    }
  }
  return ReplicateOver(scope, devices, std::move(split), model, optimizer, options);
}

Result<Outputs> BuildEvaluation(const Scope& scope, const std::string& device, const Outputs& batch, const ModelFn& model,
                                const ReplicatedStep& step) {
  Scope place = scope.SubScope("evaluation").WithDevice(device);
  NamedVariables variables(place, [&](const Declaration& declaration) {
    for (const ModelVariable& variable : step.variables) {
      if (variable.name == declaration.name) return variable.value;
    }
    place.Fail(FailedPrecondition("evaluation asks for variable '" + declaration.name + "', which training does not have"));
    return Output();
  });
  MG_ASSIGN_OR_RETURN(Outputs results, model(place, batch, variables));
  MG_RETURN_IF_ERROR(place.status());
  return results;
}

}  // namespace monograph
