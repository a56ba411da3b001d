// Hooks: what a Trainer does between its steps (tf.train.SessionRunHook and those made of it).
//
//   TrainerOptions options;
//   options.hooks = {std::make_shared<NanTensorHook>(),
//                    std::make_shared<LoggingTensorHook>(names, 100)};
//   options.chief_only_hooks = {std::make_shared<CheckpointSaverHook>(
//       std::make_shared<Saver>(root), "run1/model.ckpt", HookEvery{.steps = 1000})};
//
// To stop at a step: Trainer::Train(until). With TrainerOptions::steps_per_run a hook sees the last
// step of each run, and what is due within the run is done then.
//
// Threads: a trainer calls its hooks one at a time, from whichever thread made the step, while no
// step of this client runs but those of other loops.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/saver.h"

namespace monograph {

class Session;
class SummaryWriter;
struct TrainedStep;

// What a hook may ask for after a step.
struct HookContext {
  Session* session;
  const TrainedStep& step;
  bool stop = false;  // set: training ends after this step, as if it were the last one
};

// A failure of any of these ends training with it.
class TrainHook {
 public:
  virtual ~TrainHook() = default;
  // Train begins, or goes on with another session (train/monitored_training_session.h); variables
  // have their values. `global_step`: as far as this client knows.
  virtual Status Begin(Session* session, int64_t global_step);
  virtual Status AfterStep(HookContext* context) = 0;
  // Train ends, and nothing has failed.
  virtual Status End(Session* session, int64_t global_step);
};

// How often: after so many global steps or so much time, whichever comes first; 0: not by that.
struct HookEvery {
  int64_t steps = 0;
  std::chrono::milliseconds time{0};
};
class HookTimer {
 public:
  explicit HookTimer(const HookEvery& every) : every_(every) {}
  void Start(int64_t global_step);
  // Whether it is due; then the next time counts from here. `passed` gets the steps and seconds
  // since the last time.
  struct Passed {
    int64_t steps = 0;
    double seconds = 0;
  };
  bool Due(int64_t global_step, Passed* passed = nullptr);

 private:
  using Clock = std::chrono::steady_clock;
  const HookEvery every_;
  int64_t step_ = 0;
  Clock::time_point at_;
};

// A hook that is due now and then, counted from the beginning of Train.
class TimedHook : public TrainHook {
 public:
  Status Begin(Session* session, int64_t global_step) override;

 protected:
  explicit TimedHook(const HookEvery& every) : timer_(every) {}
  HookTimer timer_;
};

// Saves at the beginning, as often as asked for, and at the end. A checkpoint for which there is no
// room (ResourceExhausted: the disk is full, say) is left out with a warning; training goes on, and
// the next one is tried.
class CheckpointSaverHook : public TimedHook {
 public:
  // `may_save`, if given, is asked before each checkpoint; its failure ends training.
  CheckpointSaverHook(std::shared_ptr<Saver> saver, std::string path, const HookEvery& every,
                      std::function<Status()> may_save = {});
  Status Begin(Session* session, int64_t global_step) override;
  Status AfterStep(HookContext* context) override;
  Status End(Session* session, int64_t global_step) override;
  // Why the newest checkpoint was left out; OK: it is there.
  const Status& left_out() const { return left_out_; }

 private:
  Status Save(Session* session, int64_t global_step);
  const std::shared_ptr<Saver> saver_;
  const std::string path_;
  const std::function<Status()> may_save_;
  std::optional<int64_t> saved_;
  Status left_out_;
};

// Logs "loss = 0.25, accuracy = 0.5, step = 200 (1.7 sec)". `names`: of the model's first results.
class LoggingTensorHook : public TimedHook {
 public:
  LoggingTensorHook(std::vector<std::string> names, int64_t every_n_steps);
  Status AfterStep(HookContext* context) override;

 private:
  const std::vector<std::string> names_;
};

// Writes the model's first results: scalars as scalars, others as histograms. After its first step
// and as often as asked for; the first one again when training has gone back to an earlier step,
// which it says (SummaryWriter::AddStart), so that TensorBoard drops what was overtaken. What
// cannot be written is lost with a warning, at the end.
class SummarySaverHook : public TimedHook {
 public:
  SummarySaverHook(std::shared_ptr<SummaryWriter> writer, std::vector<std::string> names,
                   const HookEvery& every);
  Status Begin(Session* session, int64_t global_step) override;
  Status AfterStep(HookContext* context) override;
  Status End(Session* session, int64_t global_step) override;

 private:
  const std::shared_ptr<SummaryWriter> writer_;
  const std::vector<std::string> names_;
  bool first_ = true;      // the next step is the first one
  int64_t last_step_ = 0;  // that it was told of
};

// Logs "global_step/sec: 31.4", and writes it where a writer is given. Steps are those of all
// clients.
class StepCounterHook : public TimedHook {
 public:
  explicit StepCounterHook(int64_t every_n_steps = 100,
                           std::shared_ptr<SummaryWriter> writer = nullptr);
  Status AfterStep(HookContext* context) override;

 private:
  const std::shared_ptr<SummaryWriter> writer_;
};

// Ends training when a result of the model has a NaN: with FailedPrecondition or, unless
// `fail_on_nan`, as if it were over.
class NanTensorHook : public TrainHook {
 public:
  explicit NanTensorHook(size_t result = 0, bool fail_on_nan = true);
  Status AfterStep(HookContext* context) override;

 private:
  const size_t result_;
  const bool fail_;
};

}  // namespace monograph
