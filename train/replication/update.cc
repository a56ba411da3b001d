// The second half of Replicate: how gradients meet and are applied, one function for each way
// (see train/replication.h), and what counts the updates.
#include "train/replication/update.h"

#include <limits>
#include <utility>

#include "base/device_name.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/job_run/job_run.h"
#include "ops/sparse_training/sparse_training.h"
#include "ops/variable/variable.h"
#include "train/all_reduce.h"
#include "train/replication/options.h"
#include "train/sync_replicas.h"

namespace monograph::replication {
namespace {

// Instance keys of the broadcast, the end of the data and the end of all; all-reduces count from 1,
// one per bucket.
constexpr int kBroadcastKey = 1 << 20, kFinishKey = kBroadcastKey - 1, kMeetKey = kFinishKey - 1;
// The others wait while the chief evaluates.
constexpr double kMeetSeconds = 600;

using Gradients = std::vector<Gradient>;  // by variable

// Beside the variable, in its type: a gradient may have come in fewer bits.
Gradient Widened(const Scope& scope, const Gradient& gradient, const ModelVariable& variable) {
  if (!scope.ok() || gradient.values.dtype() == variable.dtype) return gradient;
  const Scope beside = scope.ReuseScope("gradients").ColocateWith(variable.handle);
  return {Cast(beside, gradient.values, variable.dtype), gradient.indices};
}

std::vector<GradientAndVariable> Pairs(const Scope& scope,
                                       const std::vector<ModelVariable>& variables,
                                       const Gradients& gradients) {
  std::vector<GradientAndVariable> pairs;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Gradient gradient = Widened(scope, gradients[i], variables[i]);
    pairs.push_back({gradient.values, gradient.indices, variables[i]});
  }
  return pairs;
}

// The gradients of one replica alone.
Gradients GradientsOf(const Draft& draft, size_t replica) {
  Gradients gradients;
  for (const std::vector<Gradient>& by_replica : draft.towers.gradients)
    gradients.push_back(by_replica[replica]);
  return gradients;
}

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

Gradients SumsBesideVariables(const Draft& draft) {
  Gradients sums;
  const std::vector<ModelVariable>& variables = draft.variables[0];
  for (size_t i = 0; i < variables.size() && draft.scope.ok(); ++i) {
    const Scope beside = draft.scope.ReuseScope("gradients").ColocateWith(variables[i].handle);
    std::vector<Gradient> parts;
    for (const Gradient& gradient : draft.towers.gradients[i])
      parts.push_back(Widened(draft.scope, gradient, variables[i]));
    sums.push_back(Sum(beside, parts));
  }
  return sums;
}

// Applies; the schedule of a learning rate reads global_step, which CountUpdate counts.
Operation Apply(Draft* draft, const ReplicatedStep& step, size_t copy, const Gradients& gradients) {
  if (!draft->scope.ok()) return {};
  UnscaledGradients unscaled{.pairs = Pairs(draft->scope, draft->variables[copy], gradients)};
  const bool scaled = !draft->scales.empty();
  if (scaled) {
    const Scope place = draft->scope.WithDevice(copy == 0 ? draft->home : draft->devices[copy]);
    unscaled = draft->scales[copy].Unscaled(place, unscaled.pairs);
  }
  const Operation applied =
      draft->optimizer.ApplyGradients(draft->scope, unscaled.pairs, &draft->initializers,
                                      {.global_step = &step.global_step, .count = false});
  return scaled && draft->scope.ok() ? Group(draft->scope, {applied, unscaled.update}) : applied;
}

// Counts one update once `after` has run; the count before, which no other update gets.
Output CountUpdate(const Scope& scope, const ModelVariable& global_step, Operation after) {
  if (!scope.ok()) return {};
  return ResourceCountUpTo(
      scope.WithDevice(scope.graph()->device(global_step.handle.node()).ToString())
          .WithControlDependencies({after}),
      global_step.handle, std::numeric_limits<int64_t>::max(), DT_INT64);
}

void AddTrain(Draft* draft, ReplicatedStep* step, Operation applied) {
  step->updates = CountUpdate(draft->scope.WithOpName("train"), step->global_step, applied);
  step->train = step->updates;
}

// in_graph with `async`: every replica's own update.
void AddOwnUpdates(Draft* draft, ReplicatedStep* step) {
  for (size_t r = 0; r < draft->devices.size(); ++r) {
    const Operation applied = Apply(draft, *step, 0, GradientsOf(*draft, r));
    TowerStep& tower = step->towers[r];
    tower.updates = CountUpdate(draft->scope.WithOpName("train_" + std::to_string(r)),
                                step->global_step, applied);
    tower.train = tower.updates;
  }
}

// in_graph, replicated: the replicas' gradients are all-reduced, each applies the sums to its copy.
Status AddMirroredUpdate(Draft* draft, ReplicatedStep* step) {
  std::vector<Gradients> sums;
  for (size_t r = 0; r < draft->devices.size(); ++r) sums.push_back(GradientsOf(*draft, r));
  if (sums.size() > 1) {
    AllReduceOptions reduce;
    reduce.group = {.size = static_cast<int>(sums.size()), .members = draft->devices};
    reduce.group.timeout_seconds = draft->options.timeout_seconds;
    MG_ASSIGN_OR_RETURN(sums, AllReduceReplicas(draft->scope, sums, reduce));
  }
  std::vector<Operation> applied;
  for (size_t r = 0; r < sums.size(); ++r) applied.push_back(Apply(draft, *step, r, sums[r]));
  AddTrain(draft, step, Group(draft->scope.WithOpName("update_all"), applied));
  return Status();
}

// A client's mark is a run of its own, finished or not, at each worker: a worker outlives the
// client, and may be lost. The others look at their own worker and at the client's. They meet in
// the group of the gradients, which hears when a client ends.
void AddParting(const Draft& draft, CollectiveGroup group, ReplicatedStep* step) {
  const std::vector<std::string>& workers = draft.options.worker_names;
  if (workers.size() != static_cast<size_t>(group.size)) return;
  const Scope scope = draft.scope.SubScope("parting");
  const auto rank = static_cast<size_t>(draft.options.rank);
  const auto run_at = [&](size_t worker, size_t of) {
    const std::string name = "parting_" + std::to_string(of);
    return JobRun(scope.WithDevice(workers[worker] + "/device:CPU:0").WithOpName(name), name);
  };
  std::vector<Operation> marks, unmarks;
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    const Output mine = run_at(worker, rank);
    const Scope there = scope.ColocateWith(mine);
    unmarks.push_back(JobRunBegin(there, mine));
    marks.push_back(JobRunFinish(there.WithControlDependencies({JobRunReady(there, mine)}), mine));
    if (worker == rank) continue;
    const Output here = run_at(rank, worker), beside = run_at(worker, worker);
    step->parting.marked.push_back(LogicalOr(scope.ColocateWith(here),
                                             JobRunFinished(scope.ColocateWith(here), here),
                                             JobRunFinished(scope.ColocateWith(beside), beside)));
  }
  step->parting.mark = Group(scope.WithOpName("mark"), marks);
  step->parting.unmark = Group(scope.WithOpName("unmark"), unmarks);
  const Scope beside = scope.ColocateWith(step->global_step.handle);
  group.timeout_seconds = kMeetSeconds;
  step->parting.meet =
      CollectiveReduce(beside.WithOpName("meet"), Const(beside, int64_t{0}), group, kMeetKey);
}

// between_graph, replicated: the workers' gradients are all-reduced. Before the first step worker
// 0's values go to all.
Status AddReducedUpdate(Draft* draft, ReplicatedStep* step) {
  const Scope place = draft->scope.WithDevice(draft->devices[0]);
  CollectiveGroup group{.size = draft->options.num_workers};
  group.timeout_seconds = draft->options.timeout_seconds;
  Gradients sums = GradientsOf(*draft, 0);
  if (group.size > 1) {
    AllReduceOptions reduce;
    reduce.group = group;
    MG_ASSIGN_OR_RETURN(sums, AllReduceGradients(place, sums, reduce));
  }
  AddTrain(draft, step, Apply(draft, *step, 0, sums));
  if (group.size == 1) return Status();
  // `finish` is a step whose collective never starts, because its input fails with OutOfRange: the
  // other members, who wait in their collectives, get that error.
  const Scope finish = draft->scope.SubScope("finish").ColocateWith(step->global_step.handle);
  const Output ended = ResourceCountUpTo(finish, step->global_step.handle, 0, DT_INT64);
  step->finish = CollectiveReduce(finish, ended, group, kFinishKey);
  AddParting(*draft, group, step);
  // Slots and the scale of the loss are sent, too: worker 0 may have restored all that is
  // initialised.
  Outputs handles, values;
  for (const Operation& initializer : draft->initializers) {
    handles.push_back(initializer.input(0));
    values.push_back(ReadVariable(place, handles.back()));
  }
  MG_ASSIGN_OR_RETURN(
      values, BroadcastFromFirst(place, draft->options.rank == 0, values, group, kBroadcastKey));
  std::vector<Operation> assigned;
  for (size_t i = 0; i < values.size(); ++i)
    assigned.push_back(AssignVariable(place, handles[i], values[i]));
  step->start = Group(place.WithOpName("start"), assigned);
  return Status();
}

// between_graph, parameter servers, in step.
Status AddSyncUpdate(Draft* draft, ReplicatedStep* step) {
  const ReplicateOptions& options = draft->options;
  SyncReplicasOptions sync{.replicas_to_aggregate = options.replicas_to_aggregate,
                           .total_num_replicas = options.num_workers,
                           .rank = options.rank,
                           .weighted = true,
                           .loss_scale = {},
                           .replica_names = options.worker_names};
  if (!draft->scales.empty()) sync.loss_scale = std::make_shared<LossScale>(draft->scales[0]);
  if (sync.replicas_to_aggregate == 0) sync.replicas_to_aggregate = options.num_workers;
  if (options.timeout_seconds > 0) {
    sync.operation_timeout =
        std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
  }
  MG_ASSIGN_OR_RETURN(
      SyncReplicasStep made,
      SyncReplicas(draft->optimizer, sync)
          .ApplyGradients(draft->scope,
                          Pairs(draft->scope, draft->variables[0], GradientsOf(*draft, 0)),
                          step->global_step));
  const Scope home = draft->scope.WithDevice(draft->home);
  step->updates = Sub(home.WithOpName("updates"), made.reached, Const(home, int64_t{1}));
  step->train = made.train;
  step->start = made.local_init;
  step->finish = made.finish;
  step->sync = std::make_shared<const SyncReplicasStep>(std::move(made));
  return Status();
}

}  // namespace

Status AddUpdate(Draft* draft, ReplicatedStep* step) {
  // Counting has no kernel for GPUs: beside a GPU, global_step is on the CPU of its task.
  MG_ASSIGN_OR_RETURN(const DeviceName home, DeviceName::Parse(draft->home));
  step->global_step = MakeGlobalStep(draft->scope.WithDevice(HostOf(home).ToString()));
  draft->initializers.push_back(step->global_step.initializer);
  MG_RETURN_IF_ERROR(draft->scope.status());
  const ReplicateOptions& options = draft->options;
  if (Mirrored(options)) {
    MG_RETURN_IF_ERROR(InGraph(options) ? AddMirroredUpdate(draft, step)
                                        : AddReducedUpdate(draft, step));
  } else if (InGraph(options) && options.async) {
    AddOwnUpdates(draft, step);
  } else if (InGraph(options) || options.async) {
    AddTrain(draft, step, Apply(draft, *step, 0, SumsBesideVariables(*draft)));
  } else {
    MG_RETURN_IF_ERROR(AddSyncUpdate(draft, step));
  }
  return draft->scope.status();
}

}  // namespace monograph::replication
