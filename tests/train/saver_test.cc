#include "train/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "ops/checkpoint/checkpoint.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/variable/variable.h"
#include "tests/temporary_folder.h"
#include "train/collections.h"
#include "train/moving_average.h"
#include "train/replication.h"
#include "train/trainer.h"
#include "train/variable_scope.h"

namespace monograph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SaverTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.File(name); }
  const TemporaryFolder folder_;
};

// Another byte at `place` from the end.
void AddToByte(const std::string& path, int place) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(place, std::ios::end);
  const int byte = file.get();
  file.seekp(place, std::ios::end);
  file.put(static_cast<char>(byte + 1));
}

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
  EXPECT_THAT(
      program.saver->names(),
      ::testing::IsSupersetOf({"w", "w/Adam", "w/Adam_1", "table", "table/Adam", "table/Adam_1",
                               "global_step", "beta1_power", "beta2_power"}));
  EXPECT_THAT(program.saver->names(), ::testing::Each(::testing::Not(HasSubstr("part_"))));
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
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), std::nullopt);
  Graph graph = NewGraph();
  Scope root(&graph);
  const ModelVariable w = MakeVariable(root, "w", Const(root, 1.5f));
  Saver saver(root, {.max_to_keep = 2});
  const auto session = Session::Local(graph).value();
  ASSERT_TRUE(session->Run({}, {}, {w.initializer}).ok());
  for (int step = 1; step <= 4; ++step)
    ASSERT_TRUE(saver.Save(session.get(), Path("model.ckpt"), step).ok());
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), Path("model.ckpt-4"));
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
  ASSERT_TRUE(WriteCheckpointFile(path, tensors).ok());
  const auto read = [&](const std::string& name) { return LoadVariable(Path("m"), name); };
  EXPECT_THAT(read("a").value().values<int32_t>(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(read("b").value().scalar<bool>());
  EXPECT_EQ(read("c").status().code(), Code::kNotFound);

  AddToByte(path, -3);
  EXPECT_THAT(read("a").status().ToString(), HasSubstr("'a' are damaged"));
  EXPECT_TRUE(read("b").ok());
  const uintmax_t whole = std::filesystem::file_size(path);
  for (const uintmax_t size : {whole - 1, whole - 30, uintmax_t{20}, uintmax_t{3}, uintmax_t{0}}) {
    std::filesystem::resize_file(path, size);
    EXPECT_EQ(read("a").status().code(), Code::kDataLoss) << size;
  }
  EXPECT_EQ(CheckpointFile::Open(Path("none")).status().code(), Code::kNotFound);
}

// Rows of half a MiB, so that a block of one CRC is two of them.
TEST_F(SaverTest, OfALargeTensorOnlyTheRowsThatAreWantedAreReadAndChecked) {
  constexpr int64_t kRows = 7, kColumns = 1 << 17;
  Tensor value = Tensor::Allocate(DT_FLOAT, {kRows, kColumns}).value();
  for (int64_t i = 0; i < value.elements(); ++i) value.data<float>()[i] = static_cast<float>(i);
  // Also where the pieces that it was written from do not end with the blocks.
  ASSERT_TRUE(WriteCheckpointFile(Path("m.safetensors"),
                                  {{"a",
                                    DT_FLOAT,
                                    value.shape(),
                                    {value.Slice(0, 3), value.Slice(3, 4), value.Slice(4, 7)}}})
                  .ok());
  EXPECT_TRUE(BitEqual(LoadVariable(Path("m"), "a").value(), value));
  AddToByte(Path("m.safetensors"), -3);  // of row 6, which is alone in the last block
  CheckpointReader reader = CheckpointReader::Open(Path("m")).value();
  for (int64_t begin = 0; begin < kRows; ++begin) {
    for (int64_t end = begin + 1; end <= kRows; ++end) {
      Tensor rows = Tensor::Allocate(DT_FLOAT, {end - begin, kColumns}).value();
      const Status status = reader.Read("a", {{begin, 0}, rows.shape()}, &rows);
      EXPECT_EQ(status.code(), end == kRows ? Code::kDataLoss : Code::kOk) << begin << " " << end;
      EXPECT_TRUE(!status.ok() || BitEqual(rows, value.Slice(begin, end))) << begin << " " << end;
    }
  }
}

// As when the step that asked for it is aborted.
TEST_F(SaverTest, WhatIsStoppedLeavesNoFile) {
  std::stop_source stop;
  stop.request_stop();
  const Status status = WriteCheckpointFile(
      Path("m.safetensors"), {{"a", DT_FLOAT, {}, {Tensor::Scalar(1.0f)}}}, stop.get_token());
  EXPECT_EQ(status.code(), Code::kCancelled);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// One number, saved by the task.
struct Sharded {
  explicit Sharded(const SaverOptions& options = {.sharded = true}) : root(&graph) {
    w = MakeVariable(root, "w", Const(root, 0.0f));
    fed = Placeholder(root, DT_FLOAT, PartialShape::Scalar());
    assign = AssignVariable(root, w.handle, fed);
    saver.emplace(root, options);
    EXPECT_TRUE(root.ok()) << root.status();
    session = Session::Local(graph).value();
  }
  // Saves that value.
  Result<std::string> Save(const std::string& path, float value, int64_t step = -1) {
    EXPECT_TRUE(session->Run({{fed, Tensor::Scalar(value)}}, {}, {assign}).ok());
    return saver->Save(session.get(), path, step);
  }
  Graph graph = NewGraph();
  Scope root;
  ModelVariable w;
  Output fed;
  Operation assign;
  std::optional<Saver> saver;
  std::unique_ptr<Session> session;
};

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_F(SaverTest, AShardedCheckpointHasTheNamesThatOtherProgramsExpect) {
  Sharded program({.max_to_keep = 2, .sharded = true});
  for (int step = 1; step <= 3; ++step)
    ASSERT_TRUE(program.Save(Path("model.ckpt"), static_cast<float>(step), step).ok());
  EXPECT_THAT(
      FilesOf(folder_.path()),
      ElementsAre("checkpoint", "model.ckpt-2-00001-of-00001.safetensors",
                  "model.ckpt-2.safetensors.index.json", "model.ckpt-3-00001-of-00001.safetensors",
                  "model.ckpt-3.safetensors.index.json"));
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), Path("model.ckpt-3"));
  std::ifstream file(Path("model.ckpt-3.safetensors.index.json"));
  const auto index = nlohmann::json::parse(file);
  EXPECT_EQ(index.at("metadata").at("total_size"), 4);
  EXPECT_EQ(index.at("weight_map"),
            nlohmann::json({{"w", "model.ckpt-3-00001-of-00001.safetensors"}}));
}

TEST_F(SaverTest, NodesThatSaveAreOnTheCpuOfTheTaskThatHasTheVariables) {
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Scope gpu = root.WithDevice("/job:ps/task:1/device:GPU:0");
  const ModelVariable w = MakeVariable(gpu, "w", Const(gpu, {1.0f}));
  const Scope beside = root.ColocateWith(w.handle);
  MakeVariable(beside, "w/Momentum", Const(beside, {0.0f}));
  const Scope other = root.WithDevice("/job:ps/replica:0/task:0");
  MakeVariable(other, "v", Const(other, {1.0f}));
  const Saver saver(root, {.sharded = true});
  ASSERT_TRUE(root.ok()) << root.status();
  std::vector<std::string> devices;
  for (const char* name : {"save/SaveV2", "save/SaveV2_1", "save/RestoreV2", "save/RestoreV2_1"}) {
    ASSERT_GE(graph.Find(name), 0) << name;
    devices.push_back(graph.device(graph.Find(name)).ToString());
  }
  EXPECT_EQ(graph.Find("save/SaveV2_2"), -1);
  const std::string first = "/job:ps/replica:0/task:0/device:CPU:0",
                    second = "/job:ps/replica:0/task:1/device:CPU:0";
  EXPECT_THAT(devices, ElementsAre(first, second, first, second));
}

TEST_F(SaverTest, ACheckpointIsReplacedByOneOfItsNameAsAWhole) {
  Sharded sharded, single(SaverOptions{});
  const std::string path = Path("m");
  const auto value = [&] { return LoadVariable(path, "w").value().scalar<float>(); };
  const std::string index = path + ".safetensors.index.json";
  ASSERT_TRUE(sharded.Save(path, 1).ok());
  // Where the new index would be written, something is in the way.
  std::filesystem::create_directory(index + ".part");
  const Status status = sharded.Save(path, 2).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("cannot write '" + index + "'"));
  EXPECT_EQ(value(), 1);
  std::filesystem::remove(index + ".part");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(sharded.Save(path, static_cast<float>(i)).ok());
    EXPECT_EQ(value(), i);
    EXPECT_EQ(FilesOf(folder_.path()).size(), 3u);  // one shard, its index, `checkpoint`
  }
  ASSERT_TRUE(single.Save(path, 7).ok());
  EXPECT_EQ(value(), 7);
  EXPECT_THAT(FilesOf(folder_.path()), ElementsAre("checkpoint", "m.safetensors"));
  ASSERT_TRUE(sharded.Save(path, 8).ok());
  EXPECT_EQ(value(), 8);
  EXPECT_THAT(FilesOf(folder_.path()), ::testing::Not(::testing::Contains("m.safetensors")));
}

TEST_F(SaverTest, AClientThatEndsWhileItSavesLeavesTheLatestCheckpointAsItIs) {
  Sharded program;
  ASSERT_TRUE(program.Save(Path("m"), 1, 1).ok());
  // What is there after the shards of step 2 were put in place, but not its index; and some that
  // were not.
  std::filesystem::copy(Path("m-1-00001-of-00001.safetensors"),
                        Path("m-2-00001-of-00001.safetensors"));
  std::filesystem::create_directory(Path("m_temp"));
  folder_.Write("m_temp/m-2-00001-of-00001.safetensors", "half");
  EXPECT_EQ(LatestCheckpoint(folder_.path()).value(), Path("m-1"));
  EXPECT_EQ(LoadVariable(Path("m-2"), "w").status().code(), Code::kNotFound);
  ASSERT_TRUE(program.saver->Restore(program.session.get(), Path("m-1")).ok());
  ASSERT_TRUE(program.Save(Path("m"), 2, 2).ok());
  EXPECT_EQ(LoadVariable(Path("m-2"), "w").value().scalar<float>(), 2);
  EXPECT_FALSE(std::filesystem::exists(Path("m_temp")));
}

TEST_F(SaverTest, AnIndexThatIsDamagedOrNamesFilesElsewhereIsRefused) {
  const auto open = [&](const std::string& text) {
    folder_.Write("m.safetensors.index.json", text);
    return CheckpointReader::Open(Path("m")).status();
  };
  for (const char* name : {"../m", "/etc/passwd", "a/b", "..", ""}) {
    const Status status = open(R"({"weight_map": {"w": ")" + std::string(name) + "\"}}");
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("has 'w' in '" + std::string(name) + "'"));
  }
  EXPECT_EQ(open("{").code(), Code::kDataLoss);
  EXPECT_EQ(open("{}").code(), Code::kDataLoss);
  EXPECT_EQ(open(R"({"weight_map": {"w": 1}})").code(), Code::kDataLoss);
  EXPECT_EQ(open(R"({"metadata": {"parts": {"w": ["v"]}}, "weight_map": {"u": "f"}})").code(),
            Code::kDataLoss);
  EXPECT_EQ(open(R"({"metadata": {"parts": {"w": []}}, "weight_map": {"u": "f"}})").code(),
            Code::kDataLoss);
}

TEST_F(SaverTest, PartsThatAreNotRowsOfOneTensorAreDataLoss) {
  ASSERT_TRUE(WriteCheckpointFile(Path("f"), {{"a", DT_INT32, {1}, {Tensor::Vector<int32_t>({1})}},
                                              {"b", DT_INT32, {}, {Tensor::Scalar<int32_t>(1)}}})
                  .ok());
  folder_.Write(
      "m.safetensors.index.json",
      R"({"metadata": {"parts": {"w": ["a", "b"]}}, "weight_map": {"a": "f", "b": "f"}})");
  const Status status = LoadVariable(Path("m"), "w").status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("'b' is int32[]"));
}

TEST_F(SaverTest, StringsAreRefused) {
  for (const bool sharded : {false, true}) {
    Graph graph = NewGraph();
    const Scope root(&graph);
    const ModelVariable words = MakeVariable(root, "words", Const(root, "a"));
    Saver saver(root, {.sharded = sharded});
    const auto session = Session::Local(graph).value();
    ASSERT_TRUE(session->Run({}, {}, {words.initializer}).ok());
    const Status status = saver.Save(session.get(), Path("m")).status();
    EXPECT_EQ(status.code(), Code::kUnimplemented) << status;
    EXPECT_THAT(status.message(), HasSubstr("variable 'words' is string"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  }
}

TEST_F(SaverTest, RestoreV2ReadsRowsAsTensorFlowWritesThem) {
  ASSERT_TRUE(
      WriteCheckpointFile(
          Path("m.safetensors"),
          {{"t", DT_INT32, {3, 2}, {Tensor::FromValues<int32_t>({3, 2}, {1, 2, 3, 4, 5, 6})}}})
          .ok());
  EXPECT_EQ(RowsOfShape({3, 2}, {1, 3}), "3 2 1,2:-");
  Graph graph = NewGraph();
  const Scope root(&graph);
  const auto words = [&](const std::string& word) {
    return Reshape(root, Const(root, word), IntsConst(root, {1}));
  };
  const auto restore = [&](const std::string& slice) {
    return RestoreV2(root, Const(root, Path("m")), words("t"), words(slice), {DT_INT32})[0];
  };
  const std::map<std::string, std::vector<int32_t>> good = {
      {"", {1, 2, 3, 4, 5, 6}}, {"3 2 -:-", {1, 2, 3, 4, 5, 6}}, {"3 2 1,2:-", {3, 4, 5, 6}},
      {"3 2 -:1,1", {2, 4, 6}}, {"3 2 1,2:0,1", {3, 5}},         {"3 2 2,0:-", {}}};
  const std::vector<std::string> bad = {"4 2 1,2:-",  "3 1,2",      "3 2 -:0,3", "3 2 2,2:-",
                                        "3 2 -1,2:-", "3 2 1,2,:-", "3 2 "};
  std::map<std::string, Output> nodes;
  for (const auto& [slice, values] : good) nodes[slice] = restore(slice);
  for (const std::string& slice : bad) nodes[slice] = restore(slice);
  const Operation cut =
      SaveV2(root, Const(root, Path("n.safetensors")), words("t"), words("3 2 1,2:-"), {nodes[""]});
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Local(graph).value();
  for (const auto& [slice, values] : good) {
    const auto result = session->Run({}, {nodes[slice]});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(result->at(0).values<int32_t>(), ::testing::ElementsAreArray(values)) << slice;
  }
  for (const std::string& slice : bad) {
    const Status status = session->Run({}, {nodes[slice]}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << slice << ": " << status;
  }
  EXPECT_EQ(session->Run({}, {}, {cut}).status().code(), Code::kUnimplemented);
}

// As an older version wrote it, with one checksum of a whole tensor, which here has a terabyte of
// zeros: of a sparse file, so that it takes no room, but minutes to check.
TEST_F(SaverTest, AFileThatIsSlowHoldsUpNoOtherStepAndEndsWithItsOwn) {
  constexpr uint64_t kRows = uint64_t{1} << 20, kBytes = kRows << 20;
  const std::string header =
      R"({"__metadata__": {"format": "monograph", "crc32:t": "00000000"}, "t": {"dtype": "U8",)"
      R"( "shape": [1048576, 1048576], "data_offsets": [0, 1099511627776]}})";
  const uint64_t size = header.size();
  folder_.Write("m.safetensors",
                std::string(reinterpret_cast<const char*>(&size), sizeof size) + header);
  std::filesystem::resize_file(Path("m.safetensors"), sizeof size + header.size() + kBytes);
  Graph graph = NewGraph();
  const Scope root(&graph);
  const auto words = [&](const std::string& word) {
    return Reshape(root, Const(root, word), IntsConst(root, {1}));
  };
  const Output slow = RestoreV2(root, Const(root, Path("m")), words("t"),
                                words(RowsOfShape({kRows, kRows}, {7, 8})), {DT_UINT8})[0];
  const Output quick = Add(root, Const(root, 1.0f), Const(root, 2.0f));
  const auto session =
      Session::Local(graph, {.inter_op_parallelism_threads = 1, .intra_op_parallelism_threads = 1})
          .value();
  std::promise<Status> ended;
  session->RunAsync(
      session->MakeCallable({}, {slow}).value(), {},
      [&](const Result<std::vector<Tensor>>& result) { ended.set_value(result.status()); },
      {.timeout = std::chrono::seconds(2)});
  const auto result = session->Run({}, {quick}, {}, {.timeout = std::chrono::seconds(20)});
  EXPECT_TRUE(result.ok()) << result.status();
  std::future<Status> end = ended.get_future();
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ASSERT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(end.get().code(), Code::kDeadlineExceeded);
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
