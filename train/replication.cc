// Replicated training, in the order of ReplicateOver: declare the model's variables, make them (one
// copy, or one per replica), build a tower per replica, average the results, let
// replication::AddUpdate turn gradients into updates, and add the start. Replicate cuts one batch
// for all replicas, ReplicateShards takes a batch for each; both then build the same step. In a
// synchronous step a replica's weight in the mean is its share of the examples, so that unequal
// shards give the gradient of one large batch.
#include "train/replication.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/container.h"
#include "graph/batch_shards.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/job_run/job_run.h"
#include "ops/variable/variable.h"
#include "train/replication/model_variables.h"
#include "train/replication/options.h"
#include "train/replication/towers.h"
#include "train/replication/update.h"
#include "train/sync_replicas.h"

namespace monograph {
namespace {

using replication::Declaration;
using replication::Draft;
using replication::InGraph;
using replication::Mirrored;
using replication::VariableView;

constexpr char kClient[] = "/job:client/replica:0/task:0/device:CPU:0";

bool OnCluster(const std::string& device) {
  const Result<DeviceName> name = DeviceName::Parse(device);
  return name.ok() && !name->job.empty() && name->job != "localhost";
}

// The weight of this worker's gradients in the mean over all workers.
Output WorkerWeight(const Scope& scope, const ReplicateOptions& options, const Output& input) {
  const int64_t total = options.global_batch_size;
  const int workers =
      options.replicas_to_aggregate > 0 ? options.replicas_to_aggregate : options.num_workers;
  const bool known = input.shape().known_rank() && input.shape().rank() > 0;
  const bool even = total % options.num_workers == 0 || options.replicas_to_aggregate > 0 || !known;
  return Const(scope, even ? 1.0f / static_cast<float>(workers)
                           : static_cast<float>(input.shape().dim(0)) / static_cast<float>(total));
}

// Each replica's weight in the mean that one update takes.
Outputs TowerWeights(const Scope& scope, const std::vector<std::string>& devices,
                     const BatchShards& split, const ReplicateOptions& options,
                     const std::vector<LossScale>& scales) {
  const Scope inner = scope.ReuseScope("weights");
  Outputs weights;
  for (size_t r = 0; r < devices.size(); ++r) {
    const Scope place = inner.WithDevice(devices[r]);
    if (options.async && InGraph(options)) {
      weights.push_back(Const(place, 1.0f));
    } else if (!options.async && options.replication == Replication::kBetweenGraph) {
      weights.push_back(WorkerWeight(place, options, split.shards[r][0]));
    } else if (split.weights.empty()) {
      weights.push_back(Const(place, 1.0f / static_cast<float>(devices.size())));
    } else {
      weights.push_back(split.weights[r]);
    }
    // The loss is scaled by both, so its gradient is, too.
    if (!scales.empty())
      weights[r] = Mul(place, weights[r], scales[std::min(r, scales.size() - 1)].variable().value);
  }
  return weights;
}

// Adds the initializer, if this client runs one, and what the other clients wait for.
void AddStart(Draft* draft, ReplicatedStep* step) {
  const ReplicateOptions& options = draft->options;
  const Scope& scope = draft->scope;
  if (!scope.ok()) return;
  if (step->sync != nullptr) {
    if (options.rank == 0) step->init = step->sync->init;
  } else if (options.rank == 0 || Mirrored(options)) {
    // global_step is initialised last: a client that finds a value in it knows that all other
    // variables, slots included, have theirs.
    for (const Operation& initializer : draft->initializers) {
      if (initializer.id != step->global_step.initializer.id)
        scope.graph()->AddControlInput(step->global_step.initializer.id, initializer.id);
    }
    step->init = Group(scope.WithOpName("init"), draft->initializers);
  }
  if (InGraph(options) || Mirrored(options)) return;
  step->shared = step->variables;
  step->shared.push_back(step->global_step);
  for (const ModelVariable& variable : step->shared) {
    step->initialized.push_back(
        VarIsInitialized(scope.SubScope("ready").ColocateWith(variable.handle), variable.handle));
  }
  if (step->sync != nullptr) step->initialized.push_back(step->sync->ready);
  const Scope home = scope.SubScope("job").ColocateWith(step->global_step.handle);
  const Output run = JobRun(home.WithOpName("run"), "job_run");
  step->run = {.begin = JobRunBegin(home.WithOpName("begin"), run),
               .ready = JobRunReady(home.WithOpName("ready"), run),
               .finish = JobRunFinish(home.WithOpName("finish"), run),
               .join = JobRunJoin(home.WithOpName("join"), run, options.rank, false),
               .rejoin = JobRunJoin(home.WithOpName("rejoin"), run, options.rank, true)};
}

Result<std::vector<std::vector<ModelVariable>>> MakeCopies(const Scope& scope,
                                                           const std::vector<std::string>& devices,
                                                           std::vector<Declaration>* declarations,
                                                           const ReplicateOptions& options) {
  ReplicateOptions where = options;
  if (Mirrored(options)) where.variable_devices = {devices[0]};
  std::vector<std::vector<ModelVariable>> copies(1);
  MG_ASSIGN_OR_RETURN(copies[0],
                      replication::MakeVariables(scope, declarations, where, devices[0]));
  for (size_t r = 1; Mirrored(options) && r < devices.size(); ++r) {
    MG_ASSIGN_OR_RETURN(
        std::vector<ModelVariable> mirror,
        replication::MirrorVariables(scope, copies[0], devices[r], static_cast<int>(r)));
    copies.push_back(std::move(mirror));
  }
  return copies;
}

VariableView ViewOf(const ModelVariable& variable) {
  const DeviceName& device = variable.handle.graph->device(variable.handle.node());
  return {variable.value, variable.handle, variable.shape, device.ToString()};
}

// Builds the step; `split` is the batch, cut into shards.
Result<ReplicatedStep> ReplicateOver(const Scope& scope, const std::vector<std::string>& devices,
                                     const BatchShards& split, const ModelFn& model,
                                     const Optimizer& optimizer, const ReplicateOptions& options) {
  const ContainerScope container(scope.graph(), options.container);
  MG_ASSIGN_OR_RETURN(std::vector<Declaration> declarations,
                      replication::Declare(scope, split.shards[0], model));
  Draft draft{.scope = scope, .options = options, .optimizer = optimizer, .devices = devices};
  MG_ASSIGN_OR_RETURN(draft.variables, MakeCopies(scope, devices, &declarations, options));
  draft.home = Mirrored(options) ? devices[0] : replication::VariableHomes(options, devices[0])[0];
  std::vector<std::vector<VariableView>> views(devices.size());
  for (size_t r = 0; r < devices.size(); ++r) {
    for (const ModelVariable& variable : draft.variables[std::min(r, draft.variables.size() - 1)])
      views[r].push_back(ViewOf(variable));
  }
  for (const std::vector<ModelVariable>& copy : draft.variables) {
    for (const ModelVariable& variable : copy) draft.initializers.push_back(variable.initializer);
  }
  for (size_t c = 0; options.loss_scale && c < draft.variables.size(); ++c) {
    const Scope place = c == 0
                            ? scope.WithDevice(draft.home)
                            : scope.SubScope("replica_" + std::to_string(c)).WithDevice(devices[c]);
    draft.scales.emplace_back(place, *options.loss_scale, &draft.initializers);
  }
  MG_ASSIGN_OR_RETURN(
      draft.towers,
      replication::BuildTowers(scope, options.tower_name, devices,
                               options.rank * static_cast<int>(devices.size()), split.shards,
                               TowerWeights(scope, devices, split, options, draft.scales), views,
                               declarations, model, options.gradient_dtype));

  ReplicatedStep step;
  step.options = options;
  step.variables = draft.variables[0];
  if (!draft.scales.empty()) step.loss_scale = draft.scales[0].variable().value;
  const Scope mean = scope.SubScope("mean");
  for (const Outputs& by_replica : draft.towers.results) {
    MG_ASSIGN_OR_RETURN(const Output value, WeightedMean(mean, by_replica, split.weights));
    step.results.push_back(value);
  }
  for (size_t r = 0; r < devices.size(); ++r) {
    TowerStep& tower = step.towers.emplace_back();
    tower.call = draft.towers.calls[r];
    for (const Outputs& by_replica : draft.towers.results) tower.results.push_back(by_replica[r]);
  }
  MG_RETURN_IF_ERROR(replication::AddUpdate(&draft, &step));
  AddStart(&draft, &step);
  MG_RETURN_IF_ERROR(scope.status());
  return step;
}

// The rows of each shard. InvalidArgument if they are not known.
Result<std::vector<int64_t>> RowsOf(const std::vector<Outputs>& shards) {
  std::vector<int64_t> rows;
  for (const Outputs& shard : shards) {
    const std::string which = "shard " + std::to_string(rows.size());
    for (const Output& input : shard) {
      const PartialShape& shape = input.shape();
      const bool known = shape.known_rank() && shape.rank() > 0 && shape.dim(0) > 0;
      if (!known || shape.dim(0) != shard[0].shape().dim(0)) {
        return InvalidArgument("input '" + input.name() + "' of " + which + " has shape " +
                               shape.ToString() +
                               "; the inputs of a shard need the same known number of examples");
      }
    }
    rows.push_back(shard[0].shape().dim(0));
  }
  return rows;
}

}  // namespace

Result<ReplicatedStep> Replicate(const Scope& scope, const std::vector<std::string>& devices,
                                 const Outputs& batch, const ModelFn& model,
                                 const Optimizer& optimizer, const ReplicateOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  MG_RETURN_IF_ERROR(replication::CheckOptions(options, devices));
  if (options.async && InGraph(options) && devices.size() > 1) {
    return InvalidArgument("async replicas take a batch each: give them by ReplicateShards");
  }
  // The batch is cut where it is fed, in the client's host memory: each replica's rows then travel
  // once, straight to it.
  const Scope at_client = scope.WithDevice(OnCluster(devices[0]) ? kClient : "/device:CPU:0");
  const std::vector<int64_t> shares =
      options.shares.empty() ? std::vector<int64_t>(devices.size(), 1) : options.shares;
  MG_ASSIGN_OR_RETURN(const BatchShards split, SplitBatch(at_client, batch, shares));
  return ReplicateOver(scope, devices, split, model, optimizer, options);
}

Result<ReplicatedStep> ReplicateShards(const Scope& scope, const std::vector<std::string>& devices,
                                       const std::vector<Outputs>& shards, const ModelFn& model,
                                       const Optimizer& optimizer,
                                       const ReplicateOptions& options) {
  MG_RETURN_IF_ERROR(scope.status());
  MG_RETURN_IF_ERROR(replication::CheckOptions(options, devices));
  if (shards.size() != devices.size()) {
    return InvalidArgument(std::to_string(shards.size()) + " shards for " +
                           std::to_string(devices.size()) + " devices");
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].empty() || shards[i].size() != shards[0].size())
      return InvalidArgument("all shards need the same inputs, at least one");
    for (const Output& input : shards[i]) {
      if (!input.valid())
        return InvalidArgument("an input of shard " + std::to_string(i) + " is not a tensor");
    }
  }
  BatchShards split{.shards = shards, .weights = {}};
  if (!(options.async && InGraph(options))) {
    MG_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, RowsOf(shards));
    int64_t total = 0;
    for (const int64_t count : rows) total += count;
    const bool even =
        std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows[0]; });
    for (size_t i = 0; !even && i < rows.size(); ++i) {
      const Scope place = scope.ReuseScope("weights").WithDevice(devices[i]);
      split.weights.push_back(
          Const(place, static_cast<float>(rows[i]) / static_cast<float>(total)));
    }
  }
  return ReplicateOver(scope, devices, split, model, optimizer, options);
}

Result<Outputs> BuildEvaluation(const Scope& scope, const std::string& device, const Outputs& batch,
                                const ModelFn& model, const ReplicatedStep& step) {
  Scope place = scope.SubScope("evaluation").WithDevice(device);
  // The layout of the variables, from the names that training gave them.
  std::vector<Declaration> declarations;
  std::vector<VariableView> views;
  for (const ModelVariable& variable : step.variables) {
    const size_t part = variable.name.rfind("/part_");
    const std::string name = variable.name.substr(0, part);
    views.push_back(ViewOf(variable));
    if (part != std::string::npos && !declarations.empty() && declarations.back().name == name) {
      ++declarations.back().parts;
    } else {
      declarations.push_back({.name = name, .shape = variable.shape, .initial = {}});
    }
  }
  return replication::BuildModel(place, batch, model, declarations, views);
}

}  // namespace monograph
