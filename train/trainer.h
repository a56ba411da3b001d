// Trainer: runs a ReplicatedStep, whichever way it is replicated: who initialises and who waits,
// the loops of asynchronous replicas, steps in flight, and where to go on after a restart.
//
//   Trainer trainer(session.get(), step, {{images, labels}}, [&](int loop, int64_t batch) {...});
//   MG_RETURN_IF_ERROR(trainer.Start());
//   MG_RETURN_IF_ERROR(trainer.Train(5000, [](const TrainedStep& step) {...}));
//
// The chief (rank 0) and a client that has no company initialise. The others wait until every
// shared variable has a value, and say which have none. Values that an earlier run left in the
// daemons do not count: the chief of that run is gone, and a chief that starts makes them anew. A
// client that comes back, the chief too, finds the variables as they are and goes on from their
// global_step if `join` is set; to a run whose chief is there any client may come back. Where every
// update needs every client, by parameter servers, that ends the step of the others with Aborted:
// the client may have had a part in the update. MonitoredTrainingSession goes on from there.
//
// A replica of in_graph with `async` whose worker is lost leaves the others to go on, and says so.
// When the worker is back, the replica goes on in a session of its own (TrainerOptions::reconnect).
//
// The end of the data is OutOfRange, from the feed function or from the step (a queue that is
// closed, say). It ends Train as if the last step that was made were the last one asked for: hooks
// end, a last checkpoint is saved, and Train is OK, as in TensorFlow's MonitoredTrainingSession.
// With steps_per_run the batches that are there are trained on. Of replicas with a loop each the
// others go on to the end of theirs; of clients that keep in step all end where the first one does.
//
// Random ops see the number of the batch, not of the session's step: a run draws the same values
// however many other steps its session makes, in every way of replication but in_graph with
// `async`.
//
// Threads: one caller at a time. Train makes the threads that it needs, and ends them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/session.h"
#include "train/replication.h"

namespace monograph {

class SyncReplicasRunner;
class TrainHook;
enum class JobRunJoined : int32_t;  // ops/job_run/job_run.h

struct TrainedStep {
  using Clock = std::chrono::steady_clock;
  int loop = 0;             // which loop made it; 0 unless in_graph with `async`
  int64_t batch = 0;        // the loop's batch that it was made of
  int steps = 1;            // above 1: it and those before it, which are not reported each
  int64_t global_step = 0;  // after it; no other step of the job has the same number
  std::vector<Tensor> results;
  Clock::time_point begin, end;
};

struct TrainerOptions {
  // Longest wait for variables that the chief has not initialised yet.
  std::chrono::milliseconds start_timeout{30000};
  // The client comes back to a run: the chief keeps variables that have values already, the others
  // do not ask whether the chief is there.
  bool join = false;
  // Called by a client that initialises, after it has and before any other client may begin: for
  // Saver::Restore, say (TensorFlow's Scaffold.init_fn). Training then goes on from the global_step
  // that it leaves. Not called by a chief that joins a run.
  std::function<Status(Session*)> init_fn = {};
  // At most so many steps at a time in one loop; above 1 a step may read weights before the last
  // update, and results vary from run to run.
  int steps_in_flight = 1;
  // So many steps for one answer of the executors, each with the feeds of its own batch and with
  // the bits that it has alone (TPUEstimator's iterations_per_loop): the client is asked for
  // nothing between them. Only the last one's results come back. For one loop, one step at a time;
  // not for clients that keep in step by parameter servers.
  int steps_per_run = 1;
  // in_graph with `async`: opens another session like the trainer's, in a time that is short, since
  // the end of the training waits for it. Asked again and again while the worker of a replica is
  // lost and others train. Empty: a lost worker is not replaced.
  std::function<Result<std::unique_ptr<Session>>()> reconnect = {};
  // What is done between steps (train/hooks.h), in this order; the second ones by the chief (rank
  // 0) alone. Not with steps in flight.
  std::vector<std::shared_ptr<TrainHook>> hooks = {}, chief_only_hooks = {};
  // Gets what the trainer has to say ("Waiting for model to be ready: ..."). Empty: the log.
  std::function<void(const std::string&)> say = {};
};

class Trainer {
 public:
  // Feeds of batch `batch` for loop `loop`, in the order of that loop's feeds; OutOfRange after the
  // last one. Called on the loop's thread.
  using FeedFn = std::function<Result<std::vector<Tensor>>(int loop, int64_t batch)>;
  using StepFn = std::function<void(const TrainedStep&)>;

  // `feeds`: what is fed to each loop: one entry or, for in_graph with `async`, one per replica.
  // Session and graph outlive the trainer.
  Trainer(Session* session, const ReplicatedStep& step, std::vector<Outputs> feeds, FeedFn feed,
          TrainerOptions options = {});
  // The chief, if nothing has failed, tells those who come late that the run has finished: a short
  // call to the task of global_step. REQUIRES: before Session::Close.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Initialises or waits. DeadlineExceeded lists the variables that had no value in time.
  Status Start();
  // Trains until `until` updates are made, by all clients together; loops that run beside each
  // other may make a few more. `on_step` is called once per step of this client, or for the last
  // one of steps_per_run, never by two threads at once. The first failure ends all loops. The end
  // of the data ends them, too, and is OK: see above.
  Status Train(int64_t until, const StepFn& on_step = {});
  // One more update, traced: RunMetadata::trace_json. Not for in_graph with `async`.
  Result<std::string> TraceStep();
  // Seconds that each replica takes for a step of its own, all running beside each other: the
  // fastest of `rounds`. Feeds batch 0 of loop 0; updates nothing.
  Result<std::vector<double>> TimeTowers(int rounds);

  int64_t global_step() const { return global_step_; }  // as far as this client knows

 private:
  struct Loop;
  Result<std::vector<std::string>> Uninitialized();
  Result<JobRunJoined> JoinRun(bool rejoin);
  Status Initialize();
  Status SayReady();
  Status WaitForModel();
  bool NeedsAll() const;  // by parameter servers, every update has a gradient of every replica
  Status BeginAllAnew();
  // `count` steps, of which the last one's results are fetched.
  Result<TrainedStep> Step(Loop& loop, int count = 1, const RunOptions& options = {},
                           RunMetadata* metadata = nullptr);
  // Batches `first` and those after it, whose feeds follow each other.
  Result<std::vector<Tensor>> RunLoop(const Loop& loop, int64_t first, int count,
                                      std::span<const Tensor> feeds, const RunOptions& options,
                                      RunMetadata* metadata);
  void TakeCount(TrainedStep* step);
  Status TrainLoops(int64_t until, const StepFn& on_step);
  // After the loops: what follows from the end of the data, if it has ended.
  Status FinishData();
  // Tells of a step. One call at a time.
  Status Report(const TrainedStep& step, const StepFn& on_step);
  bool LostItsWorker(const Loop& loop, const Status& failure) const;
  Status Reconnect(Loop& loop);
  Status TrainBeside(int64_t until, const StepFn& on_step);
  Status TrainInFlight(int64_t until, const StepFn& on_step);
  void Say(const std::string& text) const;

  Session* const session_;
  const ReplicatedStep step_;
  const FeedFn feed_;
  const TrainerOptions options_;
  std::unique_ptr<SyncReplicasRunner> runner_;  // the chief's, of a step with `sync`
  Callable ready_;  // the chief's, if others share its variables: says that it is there
  bool said_ready_ = false, failed_ = false;
  std::vector<Loop> loops_;
  std::vector<std::shared_ptr<TrainHook>> hooks_;  // of this client
  // Default order, as it costs nothing: once or twice per step.
  std::atomic<bool> stop_ = false;  // a hook asked for it
  std::atomic<int64_t> global_step_ = 0;
};

// The number of the session's step that trains on batch `batch` (RunOptions::step).
uint64_t StepNumber(int64_t batch);

}  // namespace monograph
