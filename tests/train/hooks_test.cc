// Hooks of the trainer, and the event files that some of them write.
#include "train/hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/temporary_folder.h"
#include "train/event.pb.h"
#include "train/monitored_training_session.h"
#include "train/replication.h"
#include "train/summary_writer.h"
#include "train/trainer.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HooksTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.File(name); }
  const TemporaryFolder folder_;
};

// w goes towards 2; results: the loss and its parts. Batch `nan_at` is NaN.
struct HookedJob {
  explicit HookedJob(int rank = 0, bool async = false) : root(&graph) {
    const auto model = [](Scope& tower, std::span<const Output> batch,
                          ModelVariables& variables) -> Result<Outputs> {
      const Output w = variables.Get("w", Shape{}, Initial::Constant(1));
      const Output errors = Square(tower, Sub(tower, w, batch[0]));
      return Outputs{ReduceMean(tower, errors), ReduceMean(tower, Abs(tower, errors))};
    };
    std::vector<std::string> devices = {"/cpu:0"};
    std::vector<Outputs> shards = {{Placeholder(root, DT_FLOAT, {2})}};
    if (async) {
      devices.push_back("/cpu:0");
      shards.push_back({Placeholder(root, DT_FLOAT, {2})});
    }
    step = ReplicateShards(root, devices, shards, model, GradientDescent(0.1),
                           {.async = async, .rank = rank, .variable_devices = {"/cpu:0"}})
               .value();
    feeds = shards;
  }
  Trainer& Start(TrainerOptions options) {
    session = Session::Local(graph).value();
    trainer = std::make_unique<Trainer>(
        session.get(), step, feeds,
        [this](int, int64_t batch) -> Result<std::vector<Tensor>> {
          const float x = batch == nan_at ? std::numeric_limits<float>::quiet_NaN() : 2.0f;
          return std::vector<Tensor>{Tensor::Vector<float>({x, 2.0f})};
        },
        std::move(options));
    const Status status = trainer->Start();
    EXPECT_TRUE(status.ok()) << status;
    return *trainer;
  }

  Graph graph = NewGraph();
  Scope root;
  ReplicatedStep step;
  std::vector<Outputs> feeds;
  int64_t nan_at = -1;
  std::unique_ptr<Session> session;
  std::unique_ptr<Trainer> trainer;
};

// Keeps what it was told.
class Recorder : public TrainHook {
 public:
  explicit Recorder(int64_t stop_at = -1) : stop_at_(stop_at) {}
  Status Begin(Session*, int64_t step) override { return Note("begin", step); }
  Status AfterStep(HookContext* context) override {
    context->stop = context->step.global_step == stop_at_;
    if (context->step.global_step == fail_at) {
      fail_at = -1;
      return Unavailable("lost it");
    }
    return Note("step", context->step.global_step);
  }
  Status End(Session*, int64_t step) override { return Note("end", step); }
  std::vector<std::string> said;
  int64_t fail_at = -1;  // once, with Unavailable

 private:
  Status Note(const char* what, int64_t step) {
    said.push_back(what + std::string(" ") + std::to_string(step));
    return Status();
  }
  const int64_t stop_at_;
};

std::vector<pb::Event> ReadEvents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  const std::string bytes = all.str();
  std::vector<pb::Event> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    EXPECT_LE(at + 16, bytes.size());
    std::memcpy(&length, bytes.data() + at, sizeof length);
    EXPECT_LE(at + 16 + length, bytes.size());
    EXPECT_TRUE(
        events.emplace_back().ParseFromArray(bytes.data() + at + 12, static_cast<int>(length)));
    at += 16 + length;
  }
  return events;
}

TEST_F(HooksTest, AreToldOfTheBeginningEachStepAndTheEnd) {
  HookedJob job;
  const auto all = std::make_shared<Recorder>(), chief = std::make_shared<Recorder>();
  Trainer& trainer = job.Start({.hooks = {all}, .chief_only_hooks = {chief}});
  ASSERT_TRUE(trainer.Train(2).ok());
  ASSERT_TRUE(trainer.Train(3).ok());
  EXPECT_THAT(all->said,
              ElementsAre("begin 0", "step 1", "step 2", "end 2", "begin 2", "step 3", "end 3"));
  EXPECT_EQ(chief->said, all->said);
}

TEST_F(HooksTest, EndTrainingAtTheStepAtWhichOneAsksForIt) {
  for (const bool async : {false, true}) {
    HookedJob job(0, async);
    const auto stops = std::make_shared<Recorder>(4);
    Trainer& trainer = job.Start({.hooks = {stops}});
    constexpr int64_t kUntil = 10'000'000;  // some minutes
    ASSERT_TRUE(trainer.Train(kUntil).ok());
    EXPECT_GE(trainer.global_step(), 4);
    // Another loop may be ahead by what it makes before this one is heard.
    EXPECT_LE(trainer.global_step(), async ? kUntil - 1 : 4);
    EXPECT_EQ(stops->said.back(), "end " + std::to_string(trainer.global_step()));
  }
}

TEST_F(HooksTest, SeeTheLastStepOfEachRun) {
  HookedJob job;
  const auto hook = std::make_shared<Recorder>();
  ASSERT_TRUE(job.Start({.steps_per_run = 4, .hooks = {hook}}).Train(10).ok());
  EXPECT_THAT(hook->said, ElementsAre("begin 0", "step 4", "step 8", "step 10", "end 10"));
}

TEST_F(HooksTest, AreRefusedWithStepsInFlight) {
  HookedJob job;
  job.session = Session::Local(job.graph).value();
  Trainer trainer(job.session.get(), job.step, job.feeds,
                  [](int, int64_t) -> Result<std::vector<Tensor>> { return std::vector<Tensor>(); },
                  {.steps_in_flight = 2, .hooks = {std::make_shared<Recorder>()}});
  const Status status = trainer.Start();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("there are 2 in flight"));
}

TEST_F(HooksTest, SaveAtTheBeginningAsOftenAsAskedForAndAtTheEnd) {
  for (const bool sharded : {false, true}) {
    HookedJob job;
    const std::string path = Path(sharded ? "sharded" : "m");
    const auto hook = std::make_shared<CheckpointSaverHook>(
        std::make_shared<Saver>(job.root, SaverOptions{.sharded = sharded}), path,
        HookEvery{.steps = 3});
    ASSERT_TRUE(job.Start({.chief_only_hooks = {hook}}).Train(7).ok());
    std::vector<int> saved;
    for (int step = 0; step <= 7; ++step) {
      if (ListVariables(path + "-" + std::to_string(step)).ok()) saved.push_back(step);
    }
    EXPECT_THAT(saved, ElementsAre(0, 3, 6, 7));
    EXPECT_EQ(LoadVariable(path + "-7", "global_step").value().scalar<int64_t>(), 7);
    EXPECT_NE(LoadVariable(path + "-7", "w").value().scalar<float>(),
              LoadVariable(path + "-6", "w").value().scalar<float>());
  }
}

TEST_F(HooksTest, LogResultsAndSpeedAsTensorFlowDoes) {
  HookedJob job;
  Trainer& trainer =
      job.Start({.hooks = {std::make_shared<LoggingTensorHook>(std::vector<std::string>{"loss"}, 2),
                           std::make_shared<StepCounterHook>(4)}});
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(trainer.Train(4).ok());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::ContainsRegex("loss = 0\\.6[34][0-9]*, step = 2 \\([0-9.]+ sec\\)"));
  EXPECT_THAT(log, HasSubstr(", step = 4 ("));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("step = 3 (")));
  EXPECT_THAT(log, ::testing::ContainsRegex("global_step/sec: [0-9]"));
}

TEST_F(HooksTest, NameAResultThatTheModelDoesNotGive) {
  HookedJob job;
  const Status status = job.Start({.hooks = {std::make_shared<LoggingTensorHook>(
                                       std::vector<std::string>{"loss", "accuracy", "more"}, 1)}})
                            .Train(1);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("3 names; the model gives 2 results"));
}

TEST_F(HooksTest, ANanEndsTrainingWithAnErrorOrWithoutOne) {
  for (const bool fails : {true, false}) {
    HookedJob job;
    job.nan_at = 2;
    Trainer& trainer = job.Start({.hooks = {std::make_shared<NanTensorHook>(0, fails)}});
    ::testing::internal::CaptureStderr();
    const Status status = trainer.Train(10);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(status.code(), fails ? Code::kFailedPrecondition : Code::kOk);
    EXPECT_THAT(fails ? status.message() : log,
                HasSubstr("NaN in result 0 of the model at step 3"));
    EXPECT_EQ(trainer.global_step(), 3);
  }
}

TEST_F(HooksTest, SummariesGoIntoAnEventFile) {
  HookedJob job;
  const std::shared_ptr<SummaryWriter> writer = SummaryWriter::Open(Path("logs")).value();
  writer->AddGraph(job.graph);
  const auto hook = std::make_shared<SummarySaverHook>(writer, std::vector<std::string>{"loss"},
                                                       HookEvery{.steps = 2});
  ASSERT_TRUE(job.Start({.hooks = {hook}}).Train(4).ok());
  std::ifstream file(writer->path(), std::ios::binary);
  char begin[12];
  file.read(begin, sizeof begin);
  // As every file of TensorFlow's begins: a record of 24 bytes, and that number's masked CRC-32C.
  EXPECT_EQ(std::string(begin, sizeof begin),
            std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_GT(events[0].wall_time(), 1.5e9);
  EXPECT_THAT(events[1].graph_def(), HasSubstr("ResourceApplyGradientDescent"));
  EXPECT_EQ(events[2].session_log().status(), pb::SessionLog::START);
  EXPECT_EQ(events[2].step(), 1);
  EXPECT_EQ(events[3].step(), 1);
  EXPECT_EQ(events[4].step(), 2);
  EXPECT_EQ(events[5].step(), 4);
  EXPECT_EQ(events[5].summary().value(0).tag(), "loss");
  EXPECT_LT(events[5].summary().value(0).simple_value(),
            events[4].summary().value(0).simple_value());
}

// As bytes, since a reader that knows no more than TensorFlow's format must see it.
TEST_F(HooksTest, AStartIsTensorFlowsMessage) {
  const auto writer = SummaryWriter::Open(folder_.path()).value();
  writer->AddStart(41);
  ASSERT_TRUE(writer->Flush().ok());
  std::ifstream file(writer->path(), std::ios::binary);
  std::ostringstream all;
  all << file.rdbuf();
  // step (field 2) 41; session_log (7) of two bytes: status (1) START (1).
  EXPECT_THAT(all.str(), HasSubstr(std::string("\x10\x29\x3a\x02\x08\x01", 6)));
}

// What TensorBoard keeps of a file: an event of a step is dropped when a START of that step or an
// earlier one follows.
std::vector<int64_t> StepsShown(const std::vector<pb::Event>& events) {
  std::vector<int64_t> steps;
  for (const pb::Event& event : events) {
    if (event.session_log().status() == pb::SessionLog::START)
      std::erase_if(steps, [&](int64_t step) { return step >= event.step(); });
    if (event.has_summary()) steps.push_back(event.step());
  }
  return steps;
}

TEST_F(HooksTest, AfterARecoveryTensorBoardDropsWhatWasOvertaken) {
  HookedJob job;
  const std::shared_ptr<SummaryWriter> writer = SummaryWriter::Open(Path("logs")).value();
  const auto hook = std::make_shared<SummarySaverHook>(writer, std::vector<std::string>{"loss"},
                                                       HookEvery{.steps = 2});
  const auto fails = std::make_shared<Recorder>();
  fails->fail_at = 7;
  const auto saver = std::make_shared<Saver>(job.root);
  MonitoredTrainingSession training(
      [&](std::chrono::milliseconds) { return Session::Local(job.graph); }, job.step, job.feeds,
      [](int, int64_t) -> Result<std::vector<Tensor>> {
        return std::vector<Tensor>{Tensor::Vector<float>({2, 2})};
      },
      {.trainer = {.hooks = {hook, fails}},
       .checkpoint_dir = Path("run"),
       .saver = saver,
       .save_checkpoint = {.steps = 4}});
  ASSERT_TRUE(training.Start().ok());
  ASSERT_TRUE(training.Train(9).ok());
  // A further call of Train goes on and takes nothing back.
  ASSERT_TRUE(training.Train(12).ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  std::vector<int64_t> written, starts;
  for (const pb::Event& event : events) {
    if (event.has_summary()) written.push_back(event.step());
    if (event.has_session_log()) starts.push_back(event.step());
  }
  EXPECT_THAT(written, ElementsAre(1, 2, 4, 6, 5, 6, 8, 11));
  EXPECT_THAT(starts, ElementsAre(1, 5));
  EXPECT_THAT(StepsShown(events), ElementsAre(1, 2, 4, 5, 6, 8, 11));
}

TEST_F(HooksTest, AShortRunWritesItsFirstStep) {
  HookedJob job;
  const std::shared_ptr<SummaryWriter> writer = SummaryWriter::Open(Path("logs")).value();
  const auto hook = std::make_shared<SummarySaverHook>(writer, std::vector<std::string>{"loss"},
                                                       HookEvery{.steps = 100});
  ASSERT_TRUE(job.Start({.hooks = {hook}}).Train(70).ok());
  EXPECT_THAT(StepsShown(ReadEvents(writer->path())), ElementsAre(1));
}

TEST_F(HooksTest, HistogramsHaveTensorFlowsBuckets) {
  const auto writer = SummaryWriter::Open(folder_.path()).value();
  ASSERT_TRUE(
      writer->AddHistogram("w", Tensor::Vector<float>({-1.0f, 0.0f, 0.5f, 0.5f, 1e30f}), 7).ok());
  EXPECT_EQ(writer->AddHistogram("s", Tensor::Scalar(true), 7).code(), Code::kInvalidArgument);
  EXPECT_THAT(writer->AddHistogram("n", Tensor::Scalar(std::nanf("")), 7).message(),
              HasSubstr("'n' has NaN or infinite values"));
  ASSERT_TRUE(writer->Flush().ok());
  const std::vector<pb::Event> events = ReadEvents(writer->path());
  ASSERT_EQ(events.size(), 2u);
  const pb::HistogramProto& histogram = events[1].summary().value(0).histo();
  EXPECT_EQ(histogram.num(), 5);
  EXPECT_EQ(histogram.min(), -1);
  EXPECT_EQ(histogram.max(), 1e30f);
  EXPECT_EQ(histogram.sum_squares(), 1 + 0.25 + 0.25 + 1e30f * double{1e30f});
  ASSERT_EQ(histogram.bucket_size(), histogram.bucket_limit_size());
  double counted = 0, half = 0;
  for (int i = 0; i < histogram.bucket_size(); ++i) {
    counted += histogram.bucket(i);
    if (i > 0) {
      EXPECT_LT(histogram.bucket_limit(i - 1), histogram.bucket_limit(i));
      if (histogram.bucket_limit(i - 1) <= 0.5 && 0.5 < histogram.bucket_limit(i))
        half = histogram.bucket(i);
    }
  }
  EXPECT_EQ(counted, 5);
  EXPECT_EQ(half, 2);
}

TEST_F(HooksTest, AWriterNamesWhatItCannotWrite) {
  std::ofstream(Path("file")) << "x";
  const Status status = SummaryWriter::Open(Path("file") + "/logs").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(Path("file")));
}

}  // namespace
}  // namespace monograph
