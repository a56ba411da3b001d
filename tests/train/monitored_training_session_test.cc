// Training that goes on by itself, with failures that a hook makes. What real losses do to clusters
// is in tests/multiprocess/recovery_test.cc.
#include "train/monitored_training_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/temporary_folder.h"
#include "tests/train/recording_disk.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Fails after step `at`, so many times.
class Failing : public TrainHook {
 public:
  Failing(int64_t at, Status failure, int times = 1)
      : at_(at), failure_(std::move(failure)), times_(times) {}
  Status Begin(Session*, int64_t step) override { return Note("begin", step); }
  Status AfterStep(HookContext* context) override {
    const int64_t step = context->step.global_step;
    if (step == at_ && times_-- > 0) return failure_;
    return Note("step", step);
  }
  Status End(Session*, int64_t step) override { return Note("end", step); }
  std::vector<std::string> told;

 private:
  Status Note(const char* what, int64_t step) {
    told.push_back(what + std::string(" ") + std::to_string(step));
    return Status();
  }
  const int64_t at_;
  const Status failure_;
  int times_;
};

// w goes towards the batches' numbers, in this process: a session that is closed takes w along.
class MonitoredTrainingSessionTest : public ::testing::Test {
 protected:
  MonitoredTrainingSessionTest() : root_(&graph_) {
    const auto model = [](Scope& tower, std::span<const Output> batch,
                          ModelVariables& variables) -> Result<Outputs> {
      const Output w = variables.Get("w", Shape{}, Initial::Constant(1));
      return Outputs{ReduceMean(tower, Square(tower, Sub(tower, w, batch[0])))};
    };
    feeds_ = {Placeholder(root_, DT_FLOAT, {2})};
    step_ = Replicate(root_, {"/cpu:0"}, feeds_, model, Adam(0.1), {.variable_devices = {"/cpu:0"}})
                .value();
    saver_ = std::make_shared<Saver>(root_);
    EXPECT_TRUE(root_.ok()) << root_.status();
  }

  Status Start(MonitoredTrainingOptions options) {
    if (!options.checkpoint_dir.empty()) {
      options.saver = saver_;
      options.save_checkpoint = {.steps = 3};
    }
    options.trainer.say = [this](const std::string& text) { said_ += text + "\n"; };
    training_ = std::make_unique<MonitoredTrainingSession>(
        [this](std::chrono::milliseconds start_timeout) -> Result<std::unique_ptr<Session>> {
          start_timeouts_.push_back(start_timeout);
          if (static_cast<size_t>(opened_++) < opening_fails_.size())
            return opening_fails_[static_cast<size_t>(opened_ - 1)];
          return Session::Local(graph_);
        },
        step_, std::vector<Outputs>{feeds_},
        [](int, int64_t batch) -> Result<std::vector<Tensor>> {
          const auto number = static_cast<float>(batch);
          return std::vector<Tensor>{Tensor::Vector<float>({number, number + 1})};
        },
        std::move(options));
    return training_->Start();
  }
  float Value() {
    return training_->session()->Run({}, {step_.variables[0].value}).value()[0].scalar<float>();
  }
  // w after `steps` without any failure.
  float Uninterrupted(int64_t steps) {
    EXPECT_TRUE(Start({}).ok());
    EXPECT_TRUE(training_->Train(steps).ok());
    opened_ = 0;
    return Value();
  }
  std::string Dir(const std::string& name) const { return folder_.File(name); }

  const TemporaryFolder folder_;
  Graph graph_ = NewGraph();
  Scope root_;
  Outputs feeds_;
  ReplicatedStep step_;
  std::shared_ptr<Saver> saver_;
  std::unique_ptr<MonitoredTrainingSession> training_;
  std::string said_;
  int opened_ = 0;
  std::vector<Status> opening_fails_;  // of the first openings
  std::vector<std::chrono::milliseconds> start_timeouts_;
};

TEST_F(MonitoredTrainingSessionTest, GoesOnFromTheLatestCheckpointWithTheBitsOfARunWithoutALoss) {
  const float expected = Uninterrupted(10);
  int number = 0;
  for (const Status& loss : {Unavailable("lost it"), Aborted("begun anew")}) {
    const auto hook = std::make_shared<Failing>(5, loss);
    ASSERT_TRUE(Start({.trainer = {.hooks = {hook}}, .checkpoint_dir = Dir(loss.message())}).ok());
    std::vector<int64_t> batches;
    const Status status =
        training_->Train(10, [&](const TrainedStep& made) { batches.push_back(made.batch); });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(batches, ElementsAre(0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(Value(), expected);
    EXPECT_EQ(opened_, 2 * ++number);
    EXPECT_THAT(hook->told,
                ElementsAre("begin 0", "step 1", "step 2", "step 3", "step 4", "begin 3", "step 4",
                            "step 5", "step 6", "step 7", "step 8", "step 9", "step 10", "end 10"));
    EXPECT_THAT(said_, HasSubstr(loss.message() + "; the session is made anew, attempt 1 of 5\n" +
                                 "Restoring parameters from " + Dir(loss.message()) +
                                 "/model.ckpt-3\nGoing on at global step 3\n"));
  }
}

TEST_F(MonitoredTrainingSessionTest, InRunsOfStepsTheWholeRunIsMadeAgain) {
  const float expected = Uninterrupted(11);
  const auto hook = std::make_shared<Failing>(8, Unavailable("lost it"));
  ASSERT_TRUE(
      Start({.trainer = {.steps_per_run = 4, .hooks = {hook}}, .checkpoint_dir = Dir("run")}).ok());
  std::vector<int64_t> steps;
  const Status status =
      training_->Train(11, [&](const TrainedStep& made) { steps.push_back(made.global_step); });
  ASSERT_TRUE(status.ok()) << status;
  // Step 8 was not saved: the chief's own hooks come after the others.
  EXPECT_THAT(steps, ElementsAre(4, 8, 8, 11));
  EXPECT_EQ(Value(), expected);
}

TEST_F(MonitoredTrainingSessionTest, AnotherErrorIsReturnedAsItIs) {
  const auto hook = std::make_shared<Failing>(2, Internal("broken"));
  ASSERT_TRUE(Start({.trainer = {.hooks = {hook}}, .checkpoint_dir = Dir("run")}).ok());
  EXPECT_EQ(training_->Train(10), Internal("broken"));
  EXPECT_EQ(opened_, 1);
}

TEST_F(MonitoredTrainingSessionTest, WithoutCheckpointsOrRecoveriesTheFirstLossIsReturned) {
  for (const MonitoredTrainingOptions& options :
       {MonitoredTrainingOptions{},
        MonitoredTrainingOptions{.checkpoint_dir = Dir("run"), .max_recoveries = 0}}) {
    opened_ = 0;
    MonitoredTrainingOptions with = options;
    with.trainer.hooks = {std::make_shared<Failing>(2, Unavailable("lost it"))};
    ASSERT_TRUE(Start(with).ok());
    EXPECT_EQ(training_->Train(10), Unavailable("lost it"));
    EXPECT_EQ(opened_, 1);
  }
}

TEST_F(MonitoredTrainingSessionTest, GivesUpWhenRecoveriesBringNoNewStep) {
  const auto hook = std::make_shared<Failing>(5, Unavailable("lost it"), 100);
  ASSERT_TRUE(
      Start({.trainer = {.hooks = {hook}}, .checkpoint_dir = Dir("run"), .max_recoveries = 1})
          .ok());
  EXPECT_EQ(training_->Train(10),
            Unavailable("lost it; the run does not go on: no new step after 1 recovery"));
  // The first loss came after step 5, which was new.
  EXPECT_EQ(opened_, 2);
}

TEST_F(MonitoredTrainingSessionTest, GoesOnAfterLossesWhileTheFirstSessionIsOpened) {
  opening_fails_ = {TaskLost("/job:ps/replica:0/task:0", "lost ps/0"), Unavailable("reset")};
  const Status status = Start({.trainer = {.start_timeout = std::chrono::minutes(1)},
                               .checkpoint_dir = Dir("run"),
                               .recovery_timeout = std::chrono::minutes(2)});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(said_, HasSubstr("lost ps/0; the session is made anew, attempt 1 of 5\n"
                               "reset; the session is made anew, attempt 2 of 5\n"));
  EXPECT_EQ(start_timeouts_[0], std::chrono::minutes(1));
  EXPECT_GT(start_timeouts_[2], std::chrono::seconds(100));
  EXPECT_TRUE(training_->Train(4).ok());
}

TEST_F(MonitoredTrainingSessionTest, GivesUpWhenTheFirstSessionDoesNotComeAbout) {
  opening_fails_ = std::vector<Status>(10, Unavailable("reset"));
  EXPECT_EQ(Start({.checkpoint_dir = Dir("run"), .max_recoveries = 1}),
            Unavailable("reset; the run does not go on: no new step after 1 recovery"));
  opened_ = 0;
  EXPECT_EQ(Start({}), Unavailable("reset"));
  EXPECT_EQ(opened_, 1);
}

TEST_F(MonitoredTrainingSessionTest, ATaskThatDoesNotComeUpInTimeIsNoLossToRecoverFrom) {
  opening_fails_ = {Unavailable("did not come up")};
  EXPECT_EQ(Start({.trainer = {.start_timeout = std::chrono::milliseconds(0)},
                   .checkpoint_dir = Dir("run")}),
            Unavailable("did not come up"));
  // But a task that was there when its time was over is lost.
  opened_ = 0;
  opening_fails_ = {TaskLost("/job:ps/replica:0/task:0", "lost ps/0")};
  const Status status = Start(
      {.trainer = {.start_timeout = std::chrono::milliseconds(0)}, .checkpoint_dir = Dir("run")});
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(MonitoredTrainingSessionTest, GivesUpWhenTheTimeIsOver) {
  const auto hook = std::make_shared<Failing>(5, Unavailable("lost it"), 100);
  ASSERT_TRUE(Start({.trainer = {.hooks = {hook}},
                     .checkpoint_dir = Dir("run"),
                     .recovery_timeout = std::chrono::milliseconds(1500)})
                  .ok());
  EXPECT_EQ(training_->Train(10),
            Unavailable("lost it; the run does not go on: no new step within 1.5 s"));
  EXPECT_EQ(opened_, 2);
}

TEST_F(MonitoredTrainingSessionTest, NewStepsBetweenLossesMakeTheCountBeginAnew) {
  const std::vector<std::shared_ptr<TrainHook>> hooks = {
      std::make_shared<Failing>(4, Unavailable("lost it")),
      std::make_shared<Failing>(5, Unavailable("lost it again"))};
  ASSERT_TRUE(
      Start({.trainer = {.hooks = hooks}, .checkpoint_dir = Dir("run"), .max_recoveries = 1}).ok());
  const Status status = training_->Train(6);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(opened_, 3);
}

TEST_F(MonitoredTrainingSessionTest, OtherWorkIsDoneAgainFromTheStateThatTrainingEndedWith) {
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  ASSERT_TRUE(training_->Train(4).ok());
  std::vector<float> values;
  const Status status = training_->Run([&]() -> Status {
    values.push_back(Value());
    return values.size() == 1 ? Unavailable("lost it") : Status();
  });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0], values[1]);
}

TEST_F(MonitoredTrainingSessionTest, TheNextProgramGoesOnWhereThisOneEnded) {
  const float expected = Uninterrupted(6);
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  ASSERT_TRUE(training_->Train(4).ok());
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  EXPECT_EQ(training_->trainer()->global_step(), 4);
  ASSERT_TRUE(training_->Train(6).ok());
  EXPECT_EQ(Value(), expected);
}

TEST_F(MonitoredTrainingSessionTest, TheUsersInitFnIsForAStartWithoutACheckpoint) {
  int called = 0;
  TrainerOptions trainer;
  trainer.init_fn = [&](Session*) {
    ++called;
    return Status();
  };
  ASSERT_TRUE(Start({.trainer = trainer, .checkpoint_dir = Dir("run")}).ok());
  ASSERT_TRUE(training_->Train(2).ok());
  EXPECT_EQ(called, 1);
  ASSERT_TRUE(Start({.trainer = trainer, .checkpoint_dir = Dir("run")}).ok());
  EXPECT_EQ(called, 1);
}

void AddToLastByte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int byte = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte + 1));
}

TEST_F(MonitoredTrainingSessionTest, GoesOnFromTheLastWholeCheckpointWithTheSameBits) {
  const float expected = Uninterrupted(10);
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  ASSERT_TRUE(training_->Train(7).ok());
  ASSERT_TRUE(training_->Close().ok());
  const std::string newest = Dir("run") + "/model.ckpt-7.safetensors";
  AddToLastByte(newest);
  const Status refused = Start({.checkpoint_dir = Dir("run"), .refuse_damaged_checkpoint = true});
  EXPECT_EQ(refused.code(), Code::kDataLoss) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("'" + newest + "'"));
  ASSERT_TRUE(training_->Close().ok());
  said_.clear();
  ::testing::internal::CaptureStderr();
  const Status started = Start({.checkpoint_dir = Dir("run")});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("model.ckpt-7' cannot be restored: checkpoint '" + newest + "': "));
  ASSERT_TRUE(started.ok()) << started;
  EXPECT_THAT(said_, HasSubstr("Restoring parameters from " + Dir("run") +
                               "/model.ckpt-6\nGoing on at global step 6\n"));
  ASSERT_TRUE(training_->Train(10).ok());
  EXPECT_EQ(Value(), expected);
  EXPECT_TRUE(std::filesystem::exists(Dir("run") + "/damaged/model.ckpt-7.safetensors"));
}

TEST_F(MonitoredTrainingSessionTest, ADiskThatIsFullForAWhileCostsTheCheckpointsOfThatTime) {
  const float expected = Uninterrupted(10);
  RecordingDisk disk;
  bool full = false;
  disk.failure = [&](const DiskCall& call) {
    return full && call.kind == DiskCall::kWrite ? ENOSPC : 0;
  };
  const DiskInPlace in_place(&disk);
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  ::testing::internal::CaptureStderr();
  const Status trained = training_->Train(
      10, [&](const TrainedStep& made) { full = made.global_step >= 2 && made.global_step < 5; });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("No space left on device; training goes on without the checkpoint of step "
                        "3, and the next one is tried"));
  ASSERT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(Value(), expected);
  for (const auto& [step, there] :
       std::map<std::string, bool>{{"0", true}, {"3", false}, {"6", true}, {"10", true}}) {
    EXPECT_EQ(std::filesystem::exists(Dir("run") + "/model.ckpt-" + step + ".safetensors"), there)
        << step;
  }
  EXPECT_TRUE(training_->Close().ok());
  // The last one of all is not missing in silence.
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  EXPECT_TRUE(training_->Train(11, [&](const TrainedStep&) { full = true; }).ok());
  const Status closed = training_->Close();
  EXPECT_EQ(closed.code(), Code::kResourceExhausted) << closed;
  EXPECT_THAT(closed.message(), HasSubstr("the last checkpoint is missing: cannot save"));
  full = false;
}

TEST_F(MonitoredTrainingSessionTest, TwoJobsDoNotWriteIntoOneFolder) {
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  const std::unique_ptr<MonitoredTrainingSession> first = std::move(training_);
  const Status second = Start({.checkpoint_dir = Dir("run")});
  EXPECT_EQ(second.code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("another job writes checkpoints into '" + Dir("run")));
  EXPECT_THAT(second.message(), HasSubstr("process " + std::to_string(getpid())));
  ASSERT_TRUE(first->Train(4).ok());
  ASSERT_TRUE(first->Close().ok());
  EXPECT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
}

TEST_F(MonitoredTrainingSessionTest, WhereFilesCannotBeLockedTheFolderStillHasOneWriter) {
  RecordingDisk disk;
  disk.failure = [](const DiskCall& call) { return call.kind == DiskCall::kLock ? ENOLCK : 0; };
  const DiskInPlace in_place(&disk);
  ASSERT_TRUE(Start({.checkpoint_dir = Dir("run")}).ok());
  std::unique_ptr<MonitoredTrainingSession> first = std::move(training_);
  EXPECT_THAT(Start({.checkpoint_dir = Dir("run")}).message(),
              HasSubstr("process " + std::to_string(getpid())));
  // A process that was killed leaves its text; one of another host cannot be asked.
  const std::string lock = Dir("run") + "/checkpoint.lock";
  for (const char* other : {"host elsewhere, process 7, start 8, since 2026-11-23", "junk"}) {
    std::ofstream(lock) << other << "\n";
    const Status ended = first->Train(first->trainer()->global_step() + 3);
    EXPECT_EQ(ended.code(), Code::kFailedPrecondition) << ended;
    EXPECT_THAT(ended.message(), HasSubstr(other));
    const Status next = Start({.checkpoint_dir = Dir("run")});
    EXPECT_TRUE(next.ok()) << next;
    first = std::move(training_);
  }
}

TEST_F(MonitoredTrainingSessionTest, OptionsThatMakeNoSenseAreNamed) {
  MonitoredTrainingSession training([this](auto) { return Session::Local(graph_); }, step_,
                                    {feeds_}, {}, {.checkpoint_dir = Dir("run")});
  EXPECT_EQ(training.Start().code(), Code::kInvalidArgument);
  EXPECT_THAT(training.Start().message(), HasSubstr("need a saver"));
  EXPECT_THAT(Start({.max_recoveries = -1}).message(), HasSubstr("max_recoveries is -1"));
}

}  // namespace
}  // namespace monograph
