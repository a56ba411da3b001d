// MonitoredTrainingSession: training that goes on by itself after a task was lost (TensorFlow's
// class of that name). It owns the session and the trainer, saves checkpoints and restores them.
//
//   MonitoredTrainingSession training(
//       [&](std::chrono::milliseconds start_timeout) {
//         return Session::Connect(cluster, graph, {.start_timeout = start_timeout});
//       },
//       step, {{images, labels}}, feed,
//       {.checkpoint_dir = "run1", .saver = std::make_shared<Saver>(root)});
//   MG_RETURN_IF_ERROR(training.Start());
//   MG_RETURN_IF_ERROR(training.Train(5000, [](const TrainedStep& made) {...}));
//
// When something fails by a loss (IsLoss: a task was lost, or started anew, or does not answer, or
// another client begins anew), it closes the session, waits a little, opens another one, which
// waits for the tasks that are missing, and starts a new trainer. Other failures are returned as
// they are.
//
// | replicas                       | go on from                                                  |
// | ------------------------------ | ----------------------------------------------------------- |
// | in step                        | the latest checkpoint, which the chief restores, at its     |
// |                                | global_step, with the batches and random values that follow |
// |                                | it: the results have the bits of a run that lost nothing    |
// | of their own pace, several     | the variables as they are, if parameter servers still have  |
// | clients                        | all of them; else the latest checkpoint                     |
//
// Clients other than the chief restore nothing, and read no file: they wait for the chief, as at
// the beginning. Each client of a job does this by itself.
//
// Hooks live on, as in TensorFlow: their Begin is called for each new session, with the global_step
// that it begins at. `on_step` is called again for steps that are made again.
//
// Errors. TensorFlow tries for ever, at once. Here a client gives up after `max_recoveries` without
// a step that it had not made before, or when `recovery_timeout` has passed since the loss: what is
// returned is the last reason, which names the task, and says so.
//
// Threads: one caller at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/hooks.h"
#include "train/trainer.h"

namespace monograph {

class FolderLock;

// True for a failure after which a new session may go on: Unavailable, Aborted, and whatever names
// a task that is lost (Status::lost_task).
bool IsLoss(const Status& failure);

struct MonitoredTrainingOptions {
  // Its init_fn is for a start without a checkpoint.
  TrainerOptions trainer = {};
  // Folder of the chief's checkpoints, "model.ckpt-300", the latest of which is restored whenever
  // the chief initialises. All clients of a job have one or none has; only the chief's is used. One
  // job at a time writes there: FailedPrecondition names the other one.
  // Empty: nothing is saved, and the first loss is returned.
  std::string checkpoint_dir = {};
  std::shared_ptr<Saver> saver = {};  // the chief's, with checkpoint_dir
  // Where the newest checkpoint is damaged, Start and recoveries end with DataLoss. Else they go on
  // from the newest one that is whole (Saver::RestoreLatest), and the log says so.
  bool refuse_damaged_checkpoint = false;
  HookEvery save_checkpoint = {.steps = 0, .time = std::chrono::minutes(10)};
  // So many in a row without a new step. 0: the first loss is returned.
  int max_recoveries = 5;
  // From a loss to the next step.
  std::chrono::milliseconds recovery_timeout = std::chrono::minutes(5);
};

class MonitoredTrainingSession {
 public:
  // Opens a session of the step's graph, on the same cluster each time. The first call gets
  // TrainerOptions::start_timeout, later ones what is left of the time for recoveries.
  using OpenFn =
      std::function<Result<std::unique_ptr<Session>>(std::chrono::milliseconds start_timeout)>;

  // As Trainer. What is behind `step` and `open` outlives this.
  MonitoredTrainingSession(OpenFn open, const ReplicatedStep& step, std::vector<Outputs> feeds,
                           Trainer::FeedFn feed, MonitoredTrainingOptions options = {});
  ~MonitoredTrainingSession();  // Close
  MonitoredTrainingSession(const MonitoredTrainingSession&) = delete;
  MonitoredTrainingSession& operator=(const MonitoredTrainingSession&) = delete;

  // Opens the session; restores, initialises or waits. A loss meanwhile is one to recover from, but
  // a task that does not come up within TrainerOptions::start_timeout is not: that is returned.
  Status Start();
  // Trainer::Train.
  Status Train(int64_t until, const Trainer::StepFn& on_step = {});
  // Anything else with session() and trainer(); it is called again after a recovery. Other
  // failures, OutOfRange too, are returned as they are.
  Status Run(const std::function<Status()>& work);
  // REQUIRES: Start was OK. The current ones: Train and Run may replace them.
  Session* session() const { return session_.get(); }
  Trainer* trainer() const { return trainer_.get(); }
  // Ends the trainer, closes the session and leaves the folder to others. Fails if the last
  // checkpoint was left out for lack of room. Idempotent. Of clients whose replicas are all-reduced
  // between them, with a checkpoint_dir, each waits for the others here if its last Train was OK,
  // and recovers with them meanwhile; a loss that does not mend within 30 s is only logged.
  Status Close();

 private:
  using Clock = std::chrono::steady_clock;

  Status Check() const;
  Status Begin();
  Status Restore(Session* session) const;
  // All have nothing left to train; a loss before each knows it is recovered from.
  Status Part();
  // After a loss in Part: whether the others may have left.
  Result<bool> HaveAllParted();
  Status CloseSession();
  // After a failure. Not OK: training does not go on.
  Status Recover(const Status& failure);
  void Say(const std::string& text) const;
  bool chief() const { return step_.options.rank == 0; }

  const OpenFn open_;
  const ReplicatedStep step_;
  const std::vector<Outputs> feeds_;
  const Trainer::FeedFn feed_;
  MonitoredTrainingOptions options_;
  std::shared_ptr<CheckpointSaverHook> saves_;  // the chief's, if there is a checkpoint_dir
  std::unique_ptr<FolderLock> lock_;  // the chief's, of checkpoint_dir, from Start to Close
  std::unique_ptr<Session> session_;
  std::unique_ptr<Trainer> trainer_;
  Clock::time_point began_;     // Start did
  bool opened_ = false;         // some session was
  bool started_ = false;        // some trainer has
  int64_t furthest_ = 0;        // global step that this client has made
  bool trained_ = false;        // the last Train was OK, and no failure has ended anything since
  int64_t reached_ = 0;         // global step at its end
  bool parting_ = false;        // Part has begun
  bool marked_ = false;         // and this client has said so, which its worker may have forgotten
  bool parted_ = false;         // and what it waits for is there, though the session may not be
  int attempts_ = 0;            // since the last new step
  Clock::time_point deadline_;  // of these attempts
};

}  // namespace monograph
