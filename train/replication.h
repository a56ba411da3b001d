// Replicate: a training step over several replicas, in every way that distributed training knows.
// The model is written once, for one replica; the options say where replicas, variables and clients
// are and how gradients meet (docs/replication.md shows each way):
//
//   replication     variable_update    what
//   in_graph        parameter_server   one client; variables on ps devices; the mean gradient is
//                                      applied once. With `async`: a free-running loop per replica
//   in_graph        replicated         one client; each replica has a copy of the variables and
//                                      applies the sum of all gradients to it
//   in_graph        central            one client; all variables on one device
//   between_graph   parameter_server   a client per worker, each with its own graph of one replica;
//                                      variables are shared by name. `async`, or else one update
//                                      per replicas_to_aggregate gradients
//   between_graph   replicated         a client per worker; gradients are all-reduced
//   hybrid          parameter_server   a client per worker with several replicas: in step with each
//                                      other, `async` to other workers
//
//   ReplicatedStep step = Replicate(root, cluster.Tasks("worker"), {images, labels},
//       [](Scope& tower, std::span<const Output> batch, ModelVariables& variables)
//           -> Result<Outputs> {
//         Output w = variables.Get("w", {784, 10}, Initial::TruncatedNormal(0.1));
//         ...
//         return Outputs{loss, accuracy};
//       },
//       Adam(1e-4), {.variable_devices = cluster.Tasks("ps")}).value();
//
// A Trainer (train/trainer.h) then runs it, whichever way it is; by hand, for one client:
//
//   session->Run({}, {}, {step.init});
//   session->Run({{images, x}, {labels, y}}, {step.results[0]}, {step.train});
//
// Same seed, same bits. All ways in which replicas keep in step (in_graph without `async`,
// between_graph without it) give the same weights, bit for bit, after each step, for the same seed,
// global batch and number of replicas: a replica's part of the batch, its name and so its random
// values, its weight in the mean, and the order in which gradients are summed are the same in all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/device_setter.h"
#include "graph/scope.h"
#include "train/loss_scale.h"
#include "train/model.h"
#include "train/optimizer.h"

namespace monograph {

enum class Replication { kInGraph, kBetweenGraph, kHybrid };
enum class VariableUpdate { kParameterServer, kReplicated, kCentral };

// "in_graph", "between_graph", "hybrid"; "parameter_server", "replicated", "central".
// InvalidArgument lists the words that there are.
Result<Replication> ParseReplication(std::string_view word);
Result<VariableUpdate> ParseVariableUpdate(std::string_view word);
std::string_view ReplicationName(Replication replication);
std::string_view VariableUpdateName(VariableUpdate update);

struct ReplicateOptions {
  Replication replication = Replication::kInGraph;
  VariableUpdate variable_update = VariableUpdate::kParameterServer;
  // Every replica (in_graph) or worker applies its gradients by itself, at its own pace.
  bool async = false;

  // between_graph, hybrid: which of the job's workers this client drives. Worker 0 is the chief.
  int rank = 0, num_workers = 1;
  // What errors call the workers, by rank (ClusterSpec::Tasks). Empty: their numbers alone.
  std::vector<std::string> worker_names = {};
  // between_graph in step: examples of one step of all workers together, so that unequal parts get
  // their due weight in the mean. 0: all parts are equal.
  int64_t global_batch_size = 0;
  // between_graph, parameter_server, in step: gradients of one update. Fewer than num_workers:
  // whoever comes later in a step is a backup whose gradients are dropped. 0: num_workers.
  int replicas_to_aggregate = 0;
  // between_graph in step, and all-reduce: longest wait for another worker or replica, after which
  // the step fails with its name. 0: 30 s (all-reduce), 60 s (parameter servers).
  double timeout_seconds = 0;

  // Devices that hold the variables. Empty: the first replica's.
  std::vector<std::string> variable_devices = {};
  // Picks one of variable_devices for each variable; empty: the one with the fewest bytes.
  PsStrategy strategy = {};
  // Variables of more bytes are cut along their first dimension into parts of at most so many, as
  // variables of their own, "name/part_0", ... 0: none is cut.
  int64_t max_variable_bytes = 0;
  // in_graph: the batch is cut in this proportion, one number per replica (the mean stays exact).
  // Empty: evenly.
  std::vector<int64_t> shares = {};
  // Of every resource of the step: jobs in containers of their own do not see each other's
  // variables. Empty: the default container.
  std::string container = {};
  // DT_BFLOAT16: whole gradients of float and double leave their replica as bfloat16, half the
  // bytes or a quarter of them. Where variables are shared each is widened beside its variable and
  // added as before; an all-reduce adds in bfloat16, rounding after each addition. Rows travel as
  // they are. DT_INVALID: as they are.
  DType gradient_dtype = DT_INVALID;
  // Scales the loss of every replica, for models that compute in half. Gradients are divided by the
  // scale when they have met, just before the update, in every way of replication: if one of them
  // is not finite, the update is made with zeros, for all variables.
  std::optional<LossScaleOptions> loss_scale = {};
  std::string tower_name = "tower";
};

// One replica's side of the step.
struct TowerStep {
  Operation call;   // the replica, forward and backward: run alone to time it
  Outputs results;  // of its own part of the batch
  Operation train;  // in_graph with `async`: its own update
  Output updates;   // as ReplicatedStep::updates, of that
};

struct ReplicatedStep {
  // As the first replica of this client reads them.
  std::vector<ModelVariable> variables;
  Outputs results;  // means over this client's batch: loss, then what else the model returned
  Operation train;  // one update; invalid for in_graph with `async`: see towers
  Output updates;   // int64, fetched with train: the number of updates before this one
  ModelVariable global_step;
  Output loss_scale;  // float, before the update; valid with ReplicateOptions::loss_scale
  std::vector<TowerStep> towers;  // replicas of this client

  // Who starts. A client with `init` runs it (variables, slots and global_step get their initial
  // values); one without waits until all of `initialized` are true, and it may join `run`. Then
  // each runs `start`, if it is valid.
  Operation init, start;
  std::vector<ModelVariable> shared;  // what other clients see, too; empty with one client
  Outputs initialized;                // bool, of each of `shared`, then of `sync`
  // What keeps others off variables that an earlier run has left (ops/job_run/job_run.h); not valid
  // if nothing is shared. The chief runs `begin` before init, `ready` after it, and `finish` at the
  // end of the training; the others fetch `join`, or `rejoin` if they come back to a run.
  struct Run {
    Operation begin, ready, finish;
    Output join, rejoin;
  } run;
  // Clients that keep in step with each other: this one's data has ended, so nobody's next step can
  // be made. Their `train` gives OutOfRange from then on.
  Operation finish;
  // between_graph, replicated: such clients leave together (MonitoredTrainingSession::Close), since
  // one that loses the answer to its last step finds nobody to make it with again. Each runs `mark`
  // when it has nothing left to train, and then `meet`, which ends when all do. `marked` are the
  // others' marks, bools: they tell one that loses that answer, too, whether all may have gone.
  // Each runs `unmark` before it trains. Not valid with one client.
  struct Parting {
    Operation mark, unmark, meet;
    Outputs marked;
  } parting;
  // between_graph with parameter servers, in step: the chief runs its updates beside training.
  std::shared_ptr<const struct SyncReplicasStep> sync;
  ReplicateOptions options;
};

// Any number of devices, one too. between_graph takes one: this worker's. `batch` is what this
// client feeds; it need not divide evenly: shard i of N has floor(B(i+1)/N) - floor(B i/N)
// examples, and means stay exact means over the batch. InvalidArgument for options that contradict
// each other.
Result<ReplicatedStep> Replicate(const Scope& scope, const std::vector<std::string>& devices,
                                 const Outputs& batch, const ModelFn& model,
                                 const Optimizer& optimizer, const ReplicateOptions& options = {});

// The same for a batch that comes in parts, each made beside its replica (input on the executors)
// or fed to it alone (in_graph with `async`): shards[i] are the inputs of replica i. Unless
// `async`, their numbers of examples must be known while building; they may differ.
Result<ReplicatedStep> ReplicateShards(const Scope& scope, const std::vector<std::string>& devices,
                                       const std::vector<Outputs>& shards, const ModelFn& model,
                                       const Optimizer& optimizer,
                                       const ReplicateOptions& options = {});

// The same model for evaluation: no gradients; reads the variables of `step`, on `device`.
Result<Outputs> BuildEvaluation(const Scope& scope, const std::string& device, const Outputs& batch,
                                const ModelFn& model, const ReplicatedStep& step);

}  // namespace monograph
