// The folder of a training job that TensorFlow has begun (tests/golden/make_checkpoints.py) is
// continued here: by names, however variables are cut and whoever reads; and the ops by which
// TensorFlow's programs save do what they do there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/checkpoint/checkpoint.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "ops/checkpoint_files/tensor_bundle.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/string/string.h"
#include "ops/variable/variable.h"
#include "tests/temporary_folder.h"
#include "tests/train/saver_programs.h"
#include "train/embedding.h"
#include "train/saver.h"
#include "train/variable_scope.h"

namespace monograph::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The job of make_checkpoints.py, with its table in `parts` parts.
struct Job {
  Job(int64_t parts, const SaverOptions& options) {
    const Scope root(&graph);
    Collections collections;
    VariableScope variables(root, &collections);
    const ScopedVariable table = variables.Get(
        "table", {5, 2},
        {.initializer =
             ValueInitializer(Tensor::FromValues<float>({5, 2}, std::vector<float>(10, 0.0f))),
         .partitioner = FixedSizePartitioner(parts)});
    const ScopedVariable w = variables.Get(
        "w", {2, 1}, {.initializer = ValueInitializer(Tensor::FromValues<float>({2, 1}, {0, 0}))});
    const ModelVariable global_step = MakeGlobalStep(root);
    const Output rows =
        EmbeddingLookup(root, table, Const(root, {0, 3, 4}), PartitionStrategy::kDiv);
    const Output targets = Const(root, Tensor::FromValues<float>({3, 1}, {1, 2, 3}));
    loss = ReduceMean(root, Square(root, Sub(root, MatMul(root, rows, w.value), targets)));
    std::vector<ModelVariable> all = table.parts;
    all.insert(all.end(), w.parts.begin(), w.parts.end());
    std::vector<Operation> initializers;
    const auto minimize =
        Adam(0.1f).Minimize(root, loss, all, &initializers, {.global_step = &global_step});
    EXPECT_TRUE(minimize.ok()) << minimize.status();
    train = *minimize;
    step = ReadVariable(root, global_step.handle, DT_INT64);
    saver.emplace(root, options);
    EXPECT_TRUE(root.ok()) << root.status();
    session = Session::Local(graph).value();
  }

  Graph graph = NewGraph();
  Output loss, step;
  Operation train;
  std::optional<Saver> saver;
  std::unique_ptr<Session> session;
};

class TensorFlowJob : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  TensorFlowJob() {
    for (const auto& entry : fs::directory_iterator(std::string(MG_GOLDEN_CHECKPOINTS) + "/job"))
      fs::copy_file(entry.path(), folder_.File(entry.path().filename()));
  }
  const TemporaryFolder folder_;
};

TEST_P(TensorFlowJob, GoesOnHereWhereItEndedThere) {
  const auto [parts, sharded] = GetParam();
  Job job(parts, {.max_to_keep = 2, .sharded = sharded});
  const auto restored = job.saver->RestoreLatest(job.session.get(), folder_.path());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, folder_.File("model.ckpt-3"));
  std::ifstream file(folder_.File("losses.json"));
  const auto losses = nlohmann::json::parse(file)["loss"];
  EXPECT_EQ(job.session->Run({}, {job.step}).value()[0].scalar<int64_t>(), 3);
  for (size_t i = 3; i < losses.size(); ++i) {
    const float loss = job.session->Run({}, {job.loss}).value()[0].scalar<float>();
    EXPECT_NEAR(loss, losses[i].get<float>(), 1e-5) << "step " << i;
    ASSERT_TRUE(job.session->Run({}, {}, {job.train}).ok());
  }
  // What was there counts for max_to_keep, and leaves with all its files.
  ASSERT_TRUE(job.saver->Save(job.session.get(), folder_.File("model.ckpt"), 6).ok());
  EXPECT_FALSE(fs::exists(folder_.File("model.ckpt-2.index")));
  EXPECT_FALSE(fs::exists(folder_.File("model.ckpt-2.data-00001-of-00002")));
  EXPECT_TRUE(fs::exists(folder_.File("model.ckpt-3.index")));
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), folder_.File("model.ckpt-6"));
}

TEST_P(TensorFlowJob, WhoseNewestCheckpointIsDamagedGoesOnFromTheOneBefore) {
  const auto [parts, sharded] = GetParam();
  const std::string data = folder_.File("model.ckpt-3.data-00000-of-00002");
  fs::resize_file(data, 100);
  Job job(parts, {.sharded = sharded});
  const auto restored = job.saver->RestoreLatest(job.session.get(), folder_.path());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(*restored, folder_.File("model.ckpt-2"));
  EXPECT_THAT(FilesOf(folder_.File("damaged")),
              ElementsAre("model.ckpt-3.data-00000-of-00002", "model.ckpt-3.data-00001-of-00002",
                          "model.ckpt-3.index"));
}

TEST_P(TensorFlowJob, IsReplacedByACheckpointOfItsName) {
  const auto [parts, sharded] = GetParam();
  Job job(parts, {.sharded = sharded});
  ASSERT_TRUE(job.saver->Restore(job.session.get(), folder_.File("model.ckpt-3")).ok());
  ASSERT_TRUE(job.saver->Save(job.session.get(), folder_.File("model.ckpt"), 3).ok());
  EXPECT_THAT(BundleFiles(folder_.File("model.ckpt-3")), ElementsAre());
  EXPECT_FALSE(CheckpointReader::Open(folder_.File("model.ckpt-3"))->is_bundle());
  EXPECT_EQ(ListVariables(folder_.File("model.ckpt-3"))->size(),
            ListVariables(folder_.File("model.ckpt-2"))->size());
}

INSTANTIATE_TEST_SUITE_P(PartsAndReaders, TensorFlowJob,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool()),
                         [](const auto& one) {
                           return std::to_string(std::get<0>(one.param)) +
                                  (std::get<1>(one.param) ? "Sharded" : "AtTheClient");
                         });

// As tf.train.Saver(sharded=True) writes it.
TEST(SaveV2, OfSeveralShardsIsMergedUnderTheProgramsOwnName) {
  const TemporaryFolder folder;
  Graph graph = NewGraph();
  const Scope root(&graph);
  const auto words = [&](const std::vector<std::string>& list) {
    Tensor tensor = Tensor::Allocate(DT_STRING, Shape{static_cast<int64_t>(list.size())}).value();
    std::copy(list.begin(), list.end(), tensor.strings());
    return Const(root, std::move(tensor));
  };
  const Output part = StringJoin(
      root, {Const(root, folder.File("model")), Const(root, "_temp/"), Const(root, "part")});
  const Output rows = Const(root, Tensor::FromValues<float>({3, 1}, {1, 2, 3}));
  const Output count = Const(root, 2);
  const Output first = ShardedFilename(root, part, Const(root, 0), count);
  const Output second = ShardedFilename(root, part, Const(root, 1), count);
  const Operation save_first = SaveV2(root, first, words({"rows", "words"}),
                                      words({"5 1 0,3:-", ""}), {rows, words({"a", "b"})});
  const Operation save_second = SaveV2(root, second, words({"rows"}), words({"5 1 3,2:-"}),
                                       {Const(root, Tensor::FromValues<float>({2, 1}, {4, 5}))});
  const Operation merge =
      MergeV2Checkpoints(root.WithControlDependencies({save_first, save_second}),
                         Pack(root, {first, second}), Const(root, folder.File("model")));
  const Outputs restored =
      RestoreV2(root.WithControlDependencies({merge}), Const(root, folder.File("model")),
                words({"rows", "rows", "words"}), words({"", "5 1 2,2:-", "2 1,1"}),
                {DT_FLOAT, DT_FLOAT, DT_STRING});
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph).value();
  // What has this name is replaced, of whichever format.
  ASSERT_TRUE(WriteCheckpointFile(folder.File("model.safetensors"), {}).ok());
  const auto values = session->Run({}, {restored[0], restored[1], restored[2], second});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT((*values)[0].values<float>(), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ((*values)[0].shape(), (Shape{5, 1}));
  EXPECT_THAT((*values)[1].values<float>(), ElementsAre(3, 4));
  EXPECT_EQ((*values)[2].shape(), Shape{1});
  EXPECT_EQ((*values)[2].strings()[0], "b");
  EXPECT_EQ(*(*values)[3].strings(), folder.File("model_temp/part-00001-of-00002"));
  EXPECT_THAT(FilesOf(folder.path()),
              ElementsAre("model.data-00000-of-00002", "model.data-00001-of-00002", "model.index"));
}

}  // namespace
}  // namespace monograph::testing
