#include "client/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/checkpoint_file.h"
#include "client/collections.h"
#include "client/moving_average.h"
#include "client/registries.h"
#include "client/replication.h"
#include "client/session.h"
#include "client/trainer.h"
#include "client/variable_scope.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"

namespace monograph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SaverTest : public testing::Test {
 protected:
  SaverTest() {
    std::string folder = testing::TempDir() + "monograph_saver_XXXXXX";
    folder_ = mkdtemp(folder.data());
  }
  ~SaverTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

// Training of a vector towards zero, with a table in `parts` parts beside it.
struct Program {
  explicit Program(int64_t parts, const std::string& vector_name = "w") : root(&graph) {
    const VariableScope variables(root, &collections);
    w = variables.Get(vector_name, {3}, {.initializer = OnesInitializer()}).parts[0];
    table = variables.Get(
        "table", {5, 2},
        {.initializer = RandomNormalInitializer(), .partitioner = FixedSizePartitioner(parts)});
    const Output loss = Add(root, ReduceSum(root, Square(root, w.value)),
                            ReduceSum(root, Square(root, table.value)));
    global_step = MakeGlobalStep(root);
    std::vector<Operation> initializers = {global_step.initializer};
    for (const ModelVariable& variable : GlobalVariables(collections))
      initializers.push_back(variable.initializer);
    train = Adam(0.1)
                .Minimize(root, loss, TrainableVariables(collections), &initializers,
                          {.global_step = &global_step})
                .value();
    init = Group(root, initializers);
    saver.emplace(root);
    EXPECT_TRUE(root.ok()) << root.status().ToString();
    session = Session::Local(graph).value();
  }
  std::vector<Tensor> Values() {
    return session->Run({}, {w.value, table.value, global_step.value}).value();
  }
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(session->Run({}, {}, {train}).ok());
  }

  Graph graph = NewGraph();
  Scope root;
  Collections collections;
  ModelVariable w, global_step;
  ScopedVariable table;
  Operation init, train;
  std::optional<Saver> saver;
  std::unique_ptr<Session> session;
};

TEST_F(SaverTest, TrainingGoesOnFromACheckpointAsIfItHadNotStoppedWithAnotherNumberOfParts) {
  Program first(3);
  ASSERT_TRUE(first.session->Run({}, {}, {first.init}).ok());
  first.Train(4);
  const Result<std::string> path =
      first.saver->Save(first.session.get(), Path("new/model.ckpt"), 4);
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  EXPECT_EQ(*path, Path("new/model.ckpt-4"));
  first.Train(3);

  Program second(2);
  ASSERT_EQ(second.saver->names(), first.saver->names());
  const Status restored = second.saver->Restore(second.session.get(), *path);
  ASSERT_TRUE(restored.ok()) << restored.ToString();
  EXPECT_EQ(second.Values()[2].scalar<int64_t>(), 4);
  second.Train(3);
  const std::vector<Tensor> expected = first.Values(), values = second.Values();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(BitEqual(values[i], expected[i])) << values[i].ToString() << expected[i].ToString();
}

TEST_F(SaverTest, SlotsAndPowersAreSavedUnderTensorFlowsNames) {
  Program program(2);
  EXPECT_THAT(program.saver->names(),
              testing::IsSupersetOf({"w", "w/Adam", "w/Adam_1", "table", "table/Adam",
                                     "table/Adam_1", "global_step", "beta1_power", "beta2_power"}));
  EXPECT_THAT(program.saver->names(), testing::Each(testing::Not(HasSubstr("part_"))));
}

TEST_F(SaverTest, AVariableWithoutValueIsNamed) {
  Program program(1);
  const Status status = program.saver->Save(program.session.get(), Path("m")).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("cannot save '" + Path("m") + "'"));
  EXPECT_THAT(status.ToString(), HasSubstr("uninitialized"));
  EXPECT_FALSE(std::filesystem::exists(Path("m.safetensors")));
}

TEST_F(SaverTest, NothingIsRestoredIfANameIsMissing) {
  Program first(1), second(1, "weights");
  ASSERT_TRUE(first.session->Run({}, {}, {first.init}).ok());
  ASSERT_TRUE(second.session->Run({}, {}, {second.init}).ok());
  first.Train(1);
  const std::string path = first.saver->Save(first.session.get(), Path("m")).value();
  const Status status = second.saver->Restore(second.session.get(), path);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(
      status.ToString(),
      HasSubstr("Key weights, weights/Adam, weights/Adam_1 not found in checkpoint '" + path));
  EXPECT_EQ(second.Values()[2].scalar<int64_t>(), 0);
}

TEST_F(SaverTest, AVariableOfAnotherShapeIsRefusedWithBothShapes) {
  Program program(1);
  ASSERT_TRUE(program.session->Run({}, {}, {program.init}).ok());
  const std::string path = program.saver->Save(program.session.get(), Path("m")).value();
  Graph graph = NewGraph();
  Scope root(&graph);
  MakeVariable(root, "w", Zeros(root, {4}));
  const auto session = Session::Local(graph).value();
  const Status status = Saver(root).Restore(session.get(), path);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("variable 'w' is float[4], but in checkpoint '" + path +
                                           "' it is float[3]"));
}

TEST_F(SaverTest, AveragesAreRestoredInPlaceOfTheirVariables) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const std::vector<ModelVariable> variables = {MakeVariable(root, "w", Const(root, {1.0f, 2.0f}))};
  const ExponentialMovingAverage no_average(0.5);
  ExponentialMovingAverage averages(0.5);
  const Operation twice = AssignVariable(root, variables[0].handle, Const(root, {3.0f, 6.0f}));
  std::vector<Operation> init = {variables[0].initializer};
  const Operation move =
      averages.Apply(root.WithControlDependencies({twice}), variables, &init).value();
  Saver all(root), shadows(root, no_average.VariablesToRestore(variables));
  ASSERT_TRUE(root.ok()) << root.status().ToString();
  const auto session = Session::Local(graph).value();
  ASSERT_TRUE(session->Run({}, {}, init).ok());
  ASSERT_TRUE(session->Run({}, {}, {move}).ok());
  const std::string path = all.Save(session.get(), Path("m")).value();
  const Status status = shadows.Restore(session.get(), path);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_THAT(session->Run({}, {variables[0].value}).value()[0].values<float>(),
              ElementsAre(2.0f, 4.0f));
}

TEST_F(SaverTest, OldCheckpointsGoAndTheLatestIsFound) {
  EXPECT_EQ(LatestCheckpoint(folder_).value(), std::nullopt);
  Graph graph = NewGraph();
  Scope root(&graph);
  const ModelVariable w = MakeVariable(root, "w", Const(root, 1.5f));
  Saver saver(root, {.max_to_keep = 2});
  const auto session = Session::Local(graph).value();
  ASSERT_TRUE(session->Run({}, {}, {w.initializer}).ok());
  for (int step = 1; step <= 4; ++step)
    ASSERT_TRUE(saver.Save(session.get(), Path("model.ckpt"), step).ok());
  EXPECT_EQ(LatestCheckpoint(folder_).value(), Path("model.ckpt-4"));
  for (int step = 1; step <= 4; ++step) {
    EXPECT_EQ(std::filesystem::exists(Path("model.ckpt-" + std::to_string(step) + ".safetensors")),
              step > 2);
  }
  const std::vector<SavedVariable> listed = ListVariables(Path("model.ckpt-3")).value();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].name, "w");
  EXPECT_EQ(LoadVariable(Path("model.ckpt-3"), "w").value().scalar<float>(), 1.5f);
}

TEST_F(SaverTest, ATruncatedOrDamagedFileIsDataLoss) {
  const std::string path = Path("m.safetensors");
  const std::vector<CheckpointTensor> tensors = {
      {"a", DT_INT32, {4}, {Tensor::Vector<int32_t>({1, 2}), Tensor::Vector<int32_t>({3, 4})}},
      {"b", DT_BOOL, {}, {Tensor::Scalar(true)}}};
  ASSERT_TRUE(WriteCheckpoint(path, tensors).ok());
  const auto read = [&](const std::string& name) -> Result<Tensor> {
    MG_ASSIGN_OR_RETURN(const CheckpointFile file, CheckpointFile::Open(path));
    return file.Read(name);
  };
  EXPECT_THAT(read("a").value().values<int32_t>(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(read("b").value().scalar<bool>());
  EXPECT_EQ(read("c").status().code(), Code::kNotFound);

  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-3, std::ios::end)
      .put(7);
  EXPECT_THAT(read("a").status().ToString(), HasSubstr("'a' are damaged"));
  EXPECT_TRUE(read("b").ok());
  const uintmax_t whole = std::filesystem::file_size(path);
  for (const uintmax_t size : {whole - 1, whole - 30, uintmax_t{20}, uintmax_t{3}, uintmax_t{0}}) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(read("a").status().code(), Code::kDataLoss) << size;
  }
  EXPECT_EQ(CheckpointFile::Open(Path("none")).status().code(), Code::kNotFound);
}

// What a client trains, from the beginning or from a checkpoint.
struct Job {
  explicit Job(Replication replication, const std::string& restored_from = "") : root(&graph) {
    const auto model = [](Scope& tower, std::span<const Output> batch,
                          ModelVariables& variables) -> Result<Outputs> {
      const Output w = variables.Get("w", Shape{}, Initial::Constant(1));
      return Outputs{ReduceMean(tower, Square(tower, Sub(tower, w, batch[0])))};
    };
    const Output x = Placeholder(root, DT_FLOAT, {2});
    step = Replicate(root, {"/cpu:0"}, {x}, model, Momentum(0.1, 0.9),
                     {.replication = replication, .variable_devices = {"/cpu:0"}})
               .value();
    saver.emplace(root);
    session = Session::Local(graph).value();
    TrainerOptions options;
    if (!restored_from.empty()) {
      options.init_fn = [this, restored_from](Session* s) {
        return saver->Restore(s, restored_from);
      };
    }
    trainer = std::make_unique<Trainer>(
        session.get(), step, std::vector<Outputs>{{x}},
        [](int, int64_t batch) -> Result<std::vector<Tensor>> {
          return std::vector<Tensor>{Tensor::Vector<float>({2.0f, static_cast<float>(batch)})};
        },
        options);
  }
  // The losses of the steps up to global step `until`.
  std::vector<float> Train(int64_t until) {
    std::vector<float> losses;
    const Status status = trainer->Train(
        until, [&](const TrainedStep& made) { losses.push_back(made.results[0].scalar<float>()); });
    EXPECT_TRUE(status.ok()) << status;
    return losses;
  }

  Graph graph = NewGraph();
  Scope root;
  ReplicatedStep step;
  std::optional<Saver> saver;
  std::unique_ptr<Session> session;
  std::unique_ptr<Trainer> trainer;
};

TEST_F(SaverTest, ATrainerGoesOnFromTheGlobalStepOfACheckpointAlsoWithSyncReplicas) {
  for (const Replication replication : {Replication::kInGraph, Replication::kBetweenGraph}) {
    Job first(replication);
    EXPECT_EQ(first.step.sync != nullptr, replication == Replication::kBetweenGraph);
    ASSERT_TRUE(first.trainer->Start().ok());
    first.Train(3);
    const std::string path = first.saver->Save(first.session.get(), Path("m"), 3).value();
    const std::vector<float> without_stop = first.Train(6);

    Job second(replication, path);
    const Status started = second.trainer->Start();
    ASSERT_TRUE(started.ok()) << started;
    EXPECT_EQ(second.trainer->global_step(), 3);
    const std::vector<float> after_restore = second.Train(6);
    EXPECT_EQ(after_restore.size(), 3u);
    EXPECT_EQ(after_restore, without_stop);
  }
}

}  // namespace
}  // namespace monograph
