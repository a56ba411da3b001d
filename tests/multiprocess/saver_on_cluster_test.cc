// Checkpoints of variables that lie on several tasks: restored onto another number of them, by the
// client and by the tasks; and folders that not every process sees.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "client/registries.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "train/collections.h"
#include "train/device_setter.h"
#include "train/optimizer.h"
#include "train/saver.h"
#include "train/variable_scope.h"

namespace monograph {
namespace {

// Adam takes a table and a vector towards zero. The table is in as many parts as there are
// parameter servers.
struct SavedProgram {
  SavedProgram(const ClusterSpec& cluster, bool sharded) : root(&graph) {
    const Scope placed = root.WithDeviceFunction(
        ReplicaDeviceSetter(cluster, {.worker_device = "/job:worker/task:0"}).value());
    const VariableScope variables(placed, &collections);
    table = variables
                .Get("table", {7, 2},
                     {.initializer = RandomNormalInitializer(),
                      .partitioner = FixedSizePartitioner(cluster.num_tasks("ps"))})
                .value;
    vector = variables.Get("vector", {3}, {.initializer = RandomNormalInitializer()}).value;
    const ModelVariable global_step = MakeGlobalStep(placed);
    step = global_step.value;
    std::vector<Operation> initializers = {global_step.initializer};
    for (const ModelVariable& variable : GlobalVariables(collections))
      initializers.push_back(variable.initializer);
    const Output loss =
        Add(root, ReduceSum(root, Square(root, table)), ReduceSum(root, Square(root, vector)));
    train = Adam(0.1)
                .Minimize(placed, loss, TrainableVariables(collections), &initializers,
                          {.global_step = &global_step})
                .value();
    init = Group(root, initializers);
    saver = std::make_unique<Saver>(root, SaverOptions{.sharded = sharded});
    EXPECT_TRUE(root.ok()) << root.status();
  }
  Graph graph = NewGraph();
  Scope root;
  Collections collections;
  Output table, vector, step;
  Operation init, train;
  std::unique_ptr<Saver> saver;
};

// A cluster with so many parameter servers, and the program on it.
struct Training {
  Training(int ps, bool sharded)
      : cluster({.ps = ps, .workers = 1}),
        program(cluster.spec(), sharded),
        session(cluster.Connect(program.graph)) {}
  void Init() { EXPECT_TRUE(session->Run({}, {}, {program.init}).ok()); }
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const Status status = session->Run({}, {}, {program.train}).status();
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  Result<std::string> Save(const std::string& path, int64_t global_step = -1) {
    return program.saver->Save(session.get(), path, global_step);
  }
  Status Restore(const std::string& path) { return program.saver->Restore(session.get(), path); }
  std::vector<Tensor> Values() {
    return session->Run({}, {program.table, program.vector, program.step}).value();
  }
  void ExpectSameValuesAs(Training* other) {
    const std::vector<Tensor> mine = Values(), its = other->Values();
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(BitEqual(mine[i], its[i])) << mine[i].ToString() << its[i].ToString();
  }

  TestCluster cluster;
  SavedProgram program;
  std::unique_ptr<Session> session;
};

TEST(SaverOnCluster, TrainingGoesOnOnAnotherNumberOfTasksWhoeverWritesAndReadsTheFiles) {
  struct Kinds {
    bool first, second, third;
  };
  for (const auto& [first, second, third] : {Kinds{true, true, true},
                                             {false, false, false},
                                             {true, false, true},
                                             {false, true, false}}) {
    const TemporaryFolder folder;
    Training on_three(3, first), on_one(1, second), on_two(2, third);
    on_three.Init();
    on_three.Train(2);
    const Result<std::string> two = on_three.Save(folder.File("model.ckpt"), 2);
    ASSERT_TRUE(two.ok()) << two.status();
    EXPECT_EQ(LatestCheckpoint(folder.path()).value(), *two);
    on_three.Train(2);
    const Status onto_one = on_one.Restore(*two);
    ASSERT_TRUE(onto_one.ok()) << onto_one;
    on_one.Train(2);
    on_one.ExpectSameValuesAs(&on_three);
    const Result<std::string> four = on_one.Save(folder.File("new/model.ckpt"));
    ASSERT_TRUE(four.ok()) << four.status();
    const Status onto_two = on_two.Restore(*four);
    ASSERT_TRUE(onto_two.ok()) << onto_two;
    on_one.Train(2);
    on_two.Train(2);
    on_two.ExpectSameValuesAs(&on_one);
  }
}

TEST(SaverOnCluster, TheIndexAndLoadVariableKnowPartsOfSeveralTasksAsOneTensor) {
  const TemporaryFolder folder;
  Training training(3, true);
  training.Init();
  training.Train(1);
  const Result<std::string> path = training.Save(folder.File("m"));
  ASSERT_TRUE(path.ok()) << path.status();
  for (const char* shard : {"m-00001-of-00003", "m-00002-of-00003", "m-00003-of-00003"})
    EXPECT_TRUE(std::filesystem::exists(folder.File(shard + std::string(".safetensors"))));
  EXPECT_TRUE(BitEqual(LoadVariable(*path, "table").value(), training.Values()[0]));
  std::map<std::string, std::string> shapes;
  for (const SavedVariable& variable : ListVariables(*path).value())
    shapes[variable.name] = variable.shape.ToString();
  EXPECT_EQ(shapes.at("table"), "[7,2]");
  EXPECT_EQ(shapes.at("table/Adam"), "[7,2]");
  EXPECT_EQ(shapes.count("table/part_0"), 0u);
  std::vector<std::string> names;
  for (const auto& [name, shape] : shapes) names.push_back(name);
  EXPECT_EQ(names, training.program.saver->names());
}

TEST(SaverOnCluster, NothingIsRestoredFromADamagedOrMissingShard) {
  const TemporaryFolder folder;
  Training training(2, true);
  training.Init();
  const std::string path = training.Save(folder.File("m"), 0).value();
  training.Train(1);
  const std::vector<Tensor> before = training.Values();
  const auto unchanged = [&] {
    const std::vector<Tensor> after = training.Values();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(BitEqual(before[i], after[i])) << i;
  };
  const std::string shard = folder.File("m-0-00002-of-00002.safetensors");
  const auto last = static_cast<std::streamoff>(std::filesystem::file_size(shard)) - 1;
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(last);
    const int byte = file.get();
    file.seekp(last);
    file.put(static_cast<char>(byte + 1));
  }
  ExpectError(training.Restore(path), Code::kDataLoss,
              {"/job:ps/replica:0/task:1", shard, "are damaged"});
  unchanged();
  std::filesystem::resize_file(shard, static_cast<uintmax_t>(last));
  ExpectError(training.Restore(path), Code::kDataLoss, {shard, "truncated"});
  unchanged();
  std::filesystem::remove(shard);
  ExpectError(training.Restore(path), Code::kDataLoss, {path, shard, "is missing"});
  unchanged();
}

// The client's folder becomes another one than that of the daemons: what "/proc/self/cwd" names is
// a folder of each process.
class OwnFolder {
 public:
  OwnFolder() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder_.path());
  }
  ~OwnFolder() { std::filesystem::current_path(before_); }
  std::string File(const std::string& name) const { return "/proc/self/cwd/" + name; }

 private:
  const TemporaryFolder folder_;
  const std::filesystem::path before_;
};

TEST(SaverOnCluster, AFolderThatOnlyTheClientSeesIsNamedWithTheTask) {
  Training training(2, true);
  training.Init();
  const OwnFolder own;
  const Status saved = training.Save(own.File("m")).status();
  ExpectError(saved, Code::kFailedPrecondition,
              {"cannot save '" + own.File("m") + "'", "/job:ps/replica:0/task:",
               "there is no folder '" + own.File("m_temp") + "'", "every task sees"});
  EXPECT_EQ(LatestCheckpoint(own.File("")).value(), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(own.File("m_temp")));

  Saver through_client(training.program.root);
  const auto session = training.cluster.Connect(training.program.graph);
  const Result<std::string> path = through_client.Save(session.get(), own.File("m"));
  ASSERT_TRUE(path.ok()) << path.status();
  ExpectError(
      training.Restore(*path), Code::kNotFound,
      {"/job:ps/replica:0/task:", "there is no checkpoint '" + *path + "'", "every task sees"});
}

TEST(SaverOnCluster, ShardsThatTheClientDoesNotSeeAreNoCheckpoint) {
  const OwnFolder theirs;
  std::filesystem::create_directory("m_temp");  // where the tasks then write
  Training training(2, true);
  training.Init();
  const OwnFolder own;
  ExpectError(training.Save(own.File("m")).status(), Code::kFailedPrecondition,
              {"/job:ps/replica:0/task:0", "has written", "the client does not see it"});
  EXPECT_EQ(LatestCheckpoint(own.File("")).value(), std::nullopt);
  EXPECT_TRUE(std::filesystem::is_empty(own.File("")));
}

// Lets a process write no file beyond so many bytes.
void LimitFiles(pid_t pid, rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(prlimit(pid, RLIMIT_FSIZE, &limit, nullptr), 0);
}

TEST(SaverOnCluster, WhoCannotWriteIsNamedAndTheLatestCheckpointStays) {
  const TemporaryFolder folder;
  Training training(2, true);
  training.Init();
  const std::string first = training.Save(folder.File("m"), 1).value();
  training.Train(1);
  const pid_t second_task = training.cluster.daemon("ps", 1).pid();
  LimitFiles(second_task, 100);
  ExpectError(training.Save(folder.File("m"), 2).status(), Code::kResourceExhausted,
              {"cannot save '" + folder.File("m-2") + "'", "/job:ps/replica:0/task:1",
               "m-2-00002-of-00002.safetensors': File too large"});
  LimitFiles(second_task, RLIM_INFINITY);
  // All shards are written, but something is in the way of the index.
  std::filesystem::create_directory(folder.File("m-2.safetensors.index.json.part"));
  ExpectError(training.Save(folder.File("m"), 2).status(), Code::kFailedPrecondition,
              {"cannot write '" + folder.File("m-2.safetensors.index.json") + "'"});
  EXPECT_EQ(LatestCheckpoint(folder.path()).value(), first);
  EXPECT_TRUE(training.Restore(first).ok());
  EXPECT_EQ(training.Values()[2].scalar<int64_t>(), 0);
  for (const char* gone : {"m_temp", "m-2-00001-of-00002.safetensors"})
    EXPECT_FALSE(std::filesystem::exists(folder.File(gone))) << gone;
}

TEST(SaverOnCluster, AVariableWithoutValueFailsTheSaveWithItsTask) {
  const TemporaryFolder folder;
  Training training(2, true);
  ExpectError(training.Save(folder.File("m")).status(), Code::kFailedPrecondition,
              {"cannot save '" + folder.File("m") + "'", "uninitialized"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace monograph
