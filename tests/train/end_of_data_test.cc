// The end of the data, OutOfRange from a feed or from the step itself, in every way of replication
// that one client has: training stops as if that had been asked for, and the last step is saved.
// Jobs of several clients are in tests/multiprocess/recovery_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/queue/queue.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "tests/temporary_folder.h"
#include "train/monitored_training_session.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kDevices = {"/cpu:0", "/cpu:1"};

class Ends : public TrainHook {
 public:
  Status AfterStep(HookContext*) override { return Status(); }
  Status End(Session*, int64_t step) override {
    at.push_back(step);
    return Status();
  }
  std::vector<int64_t> at;
};

// w goes towards the mean of the batches.
struct Job {
  Job() : root(&graph) {}

  static Result<Outputs> Model(Scope& tower, std::span<const Output> batch,
                               ModelVariables& variables) {
    const Output w = variables.Get("w", Shape{}, Initial::Constant(1));
    return Outputs{ReduceMean(tower, Square(tower, Sub(tower, w, batch[0])))};
  }
  void Build(const ReplicateOptions& options, const PartialShape& shape = {-1}) {
    feeds = {{Placeholder(root, DT_FLOAT, shape)}};
    if (options.async) {
      feeds.push_back({Placeholder(root, DT_FLOAT, shape)});
      step = ReplicateShards(root, kDevices, feeds, &Model, Adam(0.1), options).value();
    } else {
      step = Replicate(root, kDevices, feeds[0], &Model, Adam(0.1), options).value();
    }
    ASSERT_TRUE(root.ok()) << root.status();
  }
  // Batch i has rows numbers, i, i + 1, ...; the last one `last_rows`.
  Result<std::vector<Tensor>> Feed(int loop, int64_t index) {
    const int64_t count = loop == 0 ? batches : batches + 3;
    {
      std::lock_guard lock(mutex);
      asked.push_back(index);
    }
    if (index == broken_at) return DataLoss("a broken file");
    if (index >= count) return OutOfRange("no more files");
    if (feeds[0].empty()) return std::vector<Tensor>();
    std::vector<float> values;
    for (int64_t i = 0; i < (index + 1 == count ? last_rows : rows); ++i)
      values.push_back(static_cast<float>(index + i));
    return std::vector<Tensor>{
        Tensor::FromValues<float>({static_cast<int64_t>(values.size())}, values)};
  }
  Status Train(TrainerOptions trainer, int64_t until = 1'000'000) {
    trainer.say = [this](const std::string& text) { said += text + "\n"; };
    MonitoredTrainingOptions options{.trainer = std::move(trainer)};
    if (options.trainer.steps_in_flight == 1) {
      options.trainer.hooks = {ends};
      options.checkpoint_dir = folder.File("run");
      options.saver = std::make_shared<Saver>(root);
    }
    training = std::make_unique<MonitoredTrainingSession>(
        [this](std::chrono::milliseconds) {
          SessionOptions local;
          local.device_count = {{kCpu, 2}};
          return Session::Local(graph, std::move(local));
        },
        step, feeds, [this](int loop, int64_t index) { return Feed(loop, index); },
        std::move(options));
    MG_RETURN_IF_ERROR(training->Start());
    return training->Train(until, [this](const TrainedStep& made) {
      steps.push_back(made.global_step);
      loss = made.results[0].scalar<float>();
    });
  }
  // From a queue that the graph reads by itself: it holds so many numbers and is closed.
  Status TrainFromQueue(int elements, int steps_per_run) {
    const Output queue =
        FIFOQueue(root.WithOpName("q"), {DT_FLOAT}, {.shapes = {PartialShape::Scalar()}});
    const Output numbers = Placeholder(root, DT_FLOAT, {-1});
    const Operation put = QueueEnqueueMany(root, queue, {numbers});
    const Operation close = QueueClose(root, queue);
    std::vector<Outputs> shards;
    for (size_t i = 0; i < kDevices.size(); ++i)
      shards.push_back({Reshape(root, QueueDequeueMany(root, queue, Const(root, 2)).at(0), {2})});
    feeds = {{}};
    batches = 1'000'000;
    MG_ASSIGN_OR_RETURN(step, ReplicateShards(root, kDevices, shards, &Model, Adam(0.1), {}));
    MG_RETURN_IF_ERROR(root.status());
    TrainerOptions options{.steps_per_run = steps_per_run};
    options.init_fn = [=](Session* session) {
      std::vector<float> values(static_cast<size_t>(elements));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
      MG_RETURN_IF_ERROR(
          session->Run({{numbers, Tensor::FromValues<float>({elements}, values)}}, {}, {put})
              .status());
      return session->Run({}, {}, {close}).status();
    };
    return Train(std::move(options));
  }
  float Value() {
    return training->session()->Run({}, {step.variables[0].value}).value()[0].scalar<float>();
  }
  // The last checkpoint is that of this step, with the values that are there.
  void ExpectSaved(int64_t expected) {
    const auto latest = LatestCheckpoint(folder.File("run")).value();
    ASSERT_TRUE(latest);
    EXPECT_EQ(*latest, folder.File("run") + "/model.ckpt-" + std::to_string(expected));
    EXPECT_EQ(LoadVariable(*latest, "global_step").value().scalar<int64_t>(), expected);
    EXPECT_EQ(LoadVariable(*latest, "w").value().scalar<float>(), Value());
    EXPECT_THAT(ends->at, ElementsAre(expected));
  }

  const TemporaryFolder folder;
  float loss = 0;
  int64_t broken_at = -1, batches = 7, rows = 4, last_rows = 4;
  Graph graph = NewGraph();
  Scope root;
  std::vector<Outputs> feeds;
  ReplicatedStep step;
  std::shared_ptr<Ends> ends = std::make_shared<Ends>();
  std::unique_ptr<MonitoredTrainingSession> training;
  std::mutex mutex;
  std::vector<int64_t> asked;  // batches
  std::vector<int64_t> steps;
  std::string said;
};

TEST(EndOfData, StopsCleanlyAndTheLastStepIsSavedWhereverTheVariablesAre) {
  for (const VariableUpdate update :
       {VariableUpdate::kParameterServer, VariableUpdate::kReplicated, VariableUpdate::kCentral}) {
    Job job;
    job.Build({.variable_update = update});
    const Status status = job.Train({});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(job.steps, ElementsAre(1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(job.said, HasSubstr("The data has ended at global step 7: no more files\n"));
    job.ExpectSaved(7);
    // Nothing is lost or made twice: a run that is told to stop there ends with the same bits.
    Job told;
    told.batches = 100;
    told.Build({.variable_update = update});
    ASSERT_TRUE(told.Train({}, 7).ok());
    EXPECT_EQ(job.Value(), told.Value());
  }
}

TEST(EndOfData, RunsOfStepsTrainOnTheBatchesThatAreThere) {
  Job job;
  job.Build({});
  const Status status = job.Train({.steps_per_run = 4});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(job.steps, ElementsAre(4, 7));
  EXPECT_THAT(job.asked, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << "the end is asked for once";
  job.ExpectSaved(7);
}

TEST(EndOfData, ALastBatchOfFewerRowsIsTrainedOn) {
  for (const int64_t rows : {3, 2}) {
    for (const int steps_per_run : {1, 3}) {
      Job job;
      job.last_rows = rows;
      job.Build({});
      const Status status = job.Train({.steps_per_run = steps_per_run});
      ASSERT_TRUE(status.ok()) << rows << ": " << status;
      EXPECT_EQ(job.steps.back(), 7);
      EXPECT_TRUE(std::isfinite(job.Value())) << rows;
      EXPECT_TRUE(std::isfinite(job.loss)) << rows;
      job.ExpectSaved(7);
    }
  }
}

TEST(EndOfData, ALastBatchWithoutARowForEachReplicaIsAnErrorThatSaysSo) {
  Job job;
  job.last_rows = 1;
  job.Build({});
  const Status status = job.Train({});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("[1] [examples is smaller than its] [2] [replicas]"));
}

TEST(EndOfData, OfOneReplicaAtItsOwnPaceLeavesTheOthersToGoOnToTheEndOfTheirs) {
  Job job;
  job.Build({.async = true});
  const Status status = job.Train({});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(std::set<int64_t>(job.steps.begin(), job.steps.end()).size(), 7u + 10u);
  job.ExpectSaved(17);
}

TEST(EndOfData, ComesAfterTheStepsInFlight) {
  Job job;
  job.Build({});
  const Status status = job.Train({.steps_in_flight = 3});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(job.steps.size(), 7u);
  EXPECT_EQ(job.training->trainer()->global_step(), 7);
}

TEST(EndOfData, BeforeTheFirstStepSavesWhatThereIs) {
  Job job;
  job.batches = 0;
  job.Build({});
  ASSERT_TRUE(job.Train({}).ok());
  EXPECT_TRUE(job.steps.empty());
  job.ExpectSaved(0);
}

TEST(EndOfData, IsComeToAgainByTheNextCallAndTheNextProgram) {
  Job job;
  job.Build({});
  ASSERT_TRUE(job.Train({}).ok());
  ASSERT_TRUE(job.training->Train(100).ok());
  job.batches = 9;  // more has come
  ASSERT_TRUE(job.training->Train(100).ok());
  EXPECT_EQ(job.training->trainer()->global_step(), 9);
  EXPECT_THAT(job.ends->at, ElementsAre(7, 7, 9));
  job.steps.clear();
  job.ends->at.clear();
  ASSERT_TRUE(job.Train({}).ok());
  EXPECT_TRUE(job.steps.empty());
  job.ExpectSaved(9);
}

TEST(EndOfData, IsNoOtherFailureOfAFeed) {
  Job job;
  job.broken_at = 3;
  job.Build({});
  EXPECT_EQ(job.Train({}), DataLoss("a broken file"));
  EXPECT_TRUE(job.ends->at.empty());
}

TEST(EndOfData, OfTheStepsOwnInputIsTheSame) {
  for (const int steps_per_run : {1, 4}) {
    // Six whole steps, and rows for one replica of the next one.
    Job job;
    const Status status = job.TrainFromQueue(6 * 4 + 2, steps_per_run);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(job.said, HasSubstr("is closed and has insufficient elements"));
    job.ExpectSaved(6);
  }
}

}  // namespace
}  // namespace monograph
