// SyncReplicas: synchronous training by several clients (TensorFlow's SyncReplicasOptimizer). Each
// worker's client builds the same graph; gradients meet in accumulators beside the variables, the
// mean of replicas_to_aggregate of them is applied once, and every worker goes on with the next
// step.
//
//   SyncReplicas sync(Adam(1e-4), {.replicas_to_aggregate = 3, .rank = task});
//   SyncReplicasStep step = sync.ApplyGradients(scope, pairs, global_step).value();
//   if (task == 0) {
//     session->Run({}, {}, {step.init});
//     auto runner = SyncReplicasRunner::Start(session, step);
//   } else {
//     ... until session->Run({}, {step.ready}) gives true
//   }
//   session->Run({}, {}, {step.local_init});
//   while (...) session->Run({{x, images}, {y, labels}}, {loss}, {step.train});
//
// A gradient that was computed before the last update (by a backup worker that came late) is
// dropped. With total_num_replicas > replicas_to_aggregate the others are backup workers: the first
// replicas_to_aggregate gradients that come for a variable are used. Without backup workers every
// replica's gradient is in every update exactly once, and gradients are added in the order of
// ranks: the result does not depend on who was first.
//
// What differs from TensorFlow: there is no queue of tokens that a fast worker could empty for
// others; workers wait for the number of the step itself. TensorFlow's replicas_to_aggregate >
// total_num_replicas (a replica computes several gradients per update) is refused.
//
// Errors. A worker's `train` ends with
//   the deadline of its own step (Explain says how many gradients were missing then),
//   DeadlineExceeded if an update lacks gradients for operation_timeout; it says how many have
//     come, of how many, and which replicas are missing,
//   OutOfRange once some worker has run `finish`: the end of the data, for everybody,
//   Aborted if the chief has started anew (run local_init again),
//   Unavailable if the chief's session has ended, or its client is lost,
//   what made the chief's runner end, if that failed.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/scope.h"
#include "train/optimizer.h"

namespace monograph {

class Coordinator;
class LossScale;  // train/loss_scale.h
class Session;

struct SyncReplicasOptions {
  int replicas_to_aggregate = 0;  // gradients in one update
  int total_num_replicas = 0;     // 0: as many as replicas_to_aggregate
  int rank = 0;                   // of this client, 0 <= rank < total_num_replicas
  // True: each gradient is a part of the whole already (its loss was scaled by the replica's share
  // of the batch), so they are added. False: they are averaged.
  bool weighted = false;
  // Set: the losses are scaled by it, and what has met is divided by it before it is applied. The
  // same scale in all clients.
  std::shared_ptr<const LossScale> loss_scale = {};
  // How long an update may lack gradients after the first one came.
  std::chrono::milliseconds operation_timeout{60000};
  // What errors call the replicas, by rank ("/job:worker/task:1"). Empty: their numbers alone.
  std::vector<std::string> replica_names = {};
  // Names the shared state; equal in all clients, different for two models on one cluster.
  std::string name = "sync_replicas";
};

// The pieces of one synchronous step. Valid as long as the graph.
struct SyncReplicasStep {
  // Every worker: sends this worker's gradients, and ends when the update that they are for is
  // applied.
  Operation train;
  // int64, fetched with `train`: the global step that this update, or a later one, has made. The
  // variable may be of the next run by then.
  Output reached;
  // Every worker, once before `train`, and again after a restart.
  Operation local_init;
  // True once the chief has run `init` or `chief_init`.
  Output ready;
  // Any worker, when its data ends: `train` gives everybody OutOfRange from now on.
  Operation finish;
  // The chief, before its runner: initialises variables, global_step and slots, forgets gradients
  // of an earlier run, and opens the first step.
  Operation init;
  // The same without initialising: variables were restored, or the chief was restarted.
  Operation chief_init;

  // For the chief's runner: one update; saying that it is there; state of the gradients; ending
  // everybody's wait.
  Operation update;
  Operation hold;
  Outputs arrived;                   // per variable: ranks whose gradients are there
  Output step;                       // of the last update; -1: closed
  Output close_code, close_message;  // placeholders of `close`
  Operation close;
  SyncReplicasOptions options;
  std::vector<std::string> variables;  // names, as `arrived`
};

class SyncReplicas {
 public:
  SyncReplicas(Optimizer optimizer, SyncReplicasOptions options)
      : optimizer_(std::move(optimizer)), options_(std::move(options)) {}

  // REQUIRES: every client builds the same in the same order. `global_step` is an int64 variable;
  // it counts the updates. State that all share lives beside the variables and beside global_step,
  // which may be on different tasks. Sparse gradients stay rows: they travel, wait and are applied
  // as such. Variables without a gradient are left alone. InvalidArgument for options that make no
  // sense.
  Result<SyncReplicasStep> ApplyGradients(const Scope& scope,
                                          std::span<const GradientAndVariable> pairs,
                                          const ModelVariable& global_step) const;

 private:
  Status Check() const;

  const Optimizer optimizer_;
  const SyncReplicasOptions options_;
};

// The chief's loop: takes gradients, applies them, lets the workers go on. One thread, and one step
// in flight on the session, which other threads may use meanwhile.
class SyncReplicasRunner {
 public:
  // `coordinator`, if given, is stopped with the error that ends the loop. Session and coordinator
  // must outlive the runner.
  static Result<std::unique_ptr<SyncReplicasRunner>> Start(Session* session,
                                                           const SyncReplicasStep& step,
                                                           Coordinator* coordinator = nullptr);
  ~SyncReplicasRunner();  // Close

  // No further update is begun; one that waits for gradients is left to the end of the session.
  // Gives the error that ended the loop, if one did. Idempotent.
  Status Close();

 private:
  class Impl;
  explicit SyncReplicasRunner(std::shared_ptr<Impl> impl);
  const std::shared_ptr<Impl> impl_;
};

// `status`, with what it is that workers wait for, if it is DeadlineExceeded: "...; update 7 has
// the gradients of 2 of 3 replicas (0, 2), missing: 1". For a `train` that ran into its own
// deadline.
Status ExplainWait(Session* session, const SyncReplicasStep& step, const Status& status);

}  // namespace monograph
