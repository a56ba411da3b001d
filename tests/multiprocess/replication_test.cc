// Every way of replication on real daemons: the ways that keep in step give the same weights after
// each step, bit for bit.
#include "client/replication.h"

#include <functional>
#include <map>

#include "base/thread.h"
#include "client/registries.h"
#include "client/strategy.h"
#include "client/trainer.h"
#include "examples/models/mnist_cnn.h"
#include "graph/replicate.h"
#include "ops/constant/constant.h"
#include "ops/input/input.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

constexpr int kWorkers = 3, kSteps = 20;
constexpr int64_t kBatch = 25;  // does not divide evenly
constexpr int64_t kPixels = 28 * 28, kSeed = 7;

using Weights = std::vector<std::map<std::string, Tensor>>;  // after each step, by name

struct Mode {
  const char* name;
  Replication replication;
  VariableUpdate update;
};
constexpr Mode kInStep[] = {
    {"in_graph_parameter_server", Replication::kInGraph, VariableUpdate::kParameterServer},
    {"in_graph_replicated", Replication::kInGraph, VariableUpdate::kReplicated},
    {"between_graph_parameter_server", Replication::kBetweenGraph,
     VariableUpdate::kParameterServer},
    {"between_graph_replicated", Replication::kBetweenGraph, VariableUpdate::kReplicated}};

Strategy StrategyOf(const Mode& mode, const ClusterSpec& cluster, int rank) {
  Strategy strategy;
  if (mode.replication == Replication::kInGraph) {
    strategy.devices = cluster.Tasks("worker");
  } else {
    strategy = MultiWorkerMirroredStrategy(cluster, rank).value();
    strategy.options.global_batch_size = kBatch;
    strategy.device_filters.clear();
  }
  strategy.options.variable_update = mode.update;
  if (mode.update == VariableUpdate::kParameterServer)
    strategy.options.variable_devices = cluster.Tasks("ps");
  return strategy;
}

// Trains as client `rank` of the mode; the weights after each step.
Result<Weights> TrainAsClient(const Mode& mode, const ClusterSpec& cluster, int rank) {
  const Strategy strategy = StrategyOf(mode, cluster, rank);
  const int clients = strategy.options.num_workers;
  const examples::MnistCnn model{.conv1 = 4, .conv2 = 8, .fc = 32, .dropout = 0.5, .seed = kSeed};
  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(kSeed);
  const Scope here = root.WithDevice("/job:client/task:0");
  const int64_t rows = RowsByShares(
      kBatch, std::vector<int64_t>(static_cast<size_t>(clients), 1))[static_cast<size_t>(rank)];
  const Outputs feeds = {Placeholder(here.WithOpName("images"), DT_FLOAT, {rows, kPixels}),
                         Placeholder(here.WithOpName("labels"), DT_INT32, {rows})};
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      strategy.Replicate(root, feeds, model.Training(), Adam(1e-2)));
  MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> data,
                      LoadDataset({.name = "synthetic", .seed = kSeed}));
  MG_ASSIGN_OR_RETURN(
      const std::unique_ptr<BatchStream> batches,
      BatchStream::Make(
          std::move(data),
          {.batch_size = kBatch, .seed = kSeed, .shard = rank, .num_shards = clients}));
  MG_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::Connect(cluster, graph, {.device_filters = strategy.device_filters}));
  Trainer trainer(session.get(), step, {feeds},
                  [&](int, int64_t batch) -> Result<std::vector<Tensor>> {
                    MG_ASSIGN_OR_RETURN(Batch fed, batches->Get(batch));
                    return std::vector<Tensor>{std::move(fed.images), std::move(fed.labels)};
                  });
  MG_RETURN_IF_ERROR(trainer.Start());
  Outputs values;
  for (const ModelVariable& variable : step.variables) values.push_back(variable.value);
  Weights weights;
  for (int64_t until = 1; until <= kSteps; ++until) {
    MG_RETURN_IF_ERROR(trainer.Train(until));
    // The next update needs this client's gradients: nobody changes the variables meanwhile.
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> read, session->Run({}, values));
    std::map<std::string, Tensor>& now = weights.emplace_back();
    for (size_t i = 0; i < read.size(); ++i) now[step.variables[i].name] = read[i];
  }
  return weights;
}

// All clients of the mode; what the chief saw.
Weights TrainIn(const Mode& mode, const ClusterSpec& cluster) {
  const int clients = mode.replication == Replication::kInGraph ? 1 : kWorkers;
  std::vector<Result<Weights>> results(static_cast<size_t>(clients), Weights());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < clients; ++rank) {
    threads.push_back(StartThread("client", [&, rank] {
      results[static_cast<size_t>(rank)] = TrainAsClient(mode, cluster, rank);
    }));
  }
  for (std::thread& thread : threads) thread.join();
  for (const Result<Weights>& result : results) EXPECT_TRUE(result.ok()) << result.status();
  return results[0].ok() ? results[0].value() : Weights();
}

// Where two runs part; empty if they have the same bits.
std::string Difference(const Weights& a, const Weights& b) {
  if (a.size() != b.size()) return "they differ in length";
  for (size_t step = 0; step < a.size(); ++step) {
    for (const auto& [name, value] : a[step]) {
      const auto other = b[step].find(name);
      if (other == b[step].end()) return "'" + name + "' is in one of them only";
      if (!SameBits(value, other->second))
        return "'" + name + "' differs after step " + std::to_string(step + 1);
    }
  }
  return "";
}

class ReplicationBits : public ::testing::TestWithParam<int> {};

TEST_P(ReplicationBits, AreTheSameInEveryWayThatKeepsInStepAfterEachOf20Steps) {
  const std::string threads = std::to_string(GetParam());
  Weights expected;
  for (const Mode& mode : kInStep) {
    TestCluster cluster({.ps = 2,
                         .workers = kWorkers,
                         .flags = {"--inter_op_parallelism_threads=" + threads,
                                   "--intra_op_parallelism_threads=" + threads}});
    const Weights weights = TrainIn(mode, cluster.spec());
    ASSERT_EQ(weights.size(), static_cast<size_t>(kSteps)) << mode.name;
    if (expected.empty()) {
      expected = weights;
      EXPECT_NE(Difference({expected[0]}, {expected[1]}), "") << "the weights do not change";
    }
    EXPECT_EQ(Difference(expected, weights), "") << mode.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ReplicationBits, ::testing::Values(1, 4),
                         [](const auto& threads) { return std::to_string(threads.param); });

TEST(Strategies, NameTheRowsOfTheTable) {
  const ClusterSpec cluster =
      ClusterSpec::FromHosts({{"ps", "localhost:1"}, {"worker", "localhost:2,localhost:3"}})
          .value();
  EXPECT_EQ(OneDeviceStrategy("/device:CPU:0").num_replicas_in_sync(), 1);
  EXPECT_EQ(MirroredStrategy(cluster.Tasks("worker")).num_replicas_in_sync(), 2);
  EXPECT_EQ(
      CentralStorageStrategy(cluster.Tasks("worker"), "/job:ps/task:0").options.variable_devices[0],
      "/job:ps/task:0");
  const Strategy ps = ParameterServerStrategy(cluster, 1).value();
  EXPECT_EQ(ps.num_replicas_in_sync(), 1);
  EXPECT_EQ(ps.devices[0], "/job:worker/task:1");
  EXPECT_EQ(MultiWorkerMirroredStrategy(cluster, 0).value().num_replicas_in_sync(), 2);
  ExpectError(MultiWorkerMirroredStrategy(cluster, 2).status(), Code::kInvalidArgument,
              {"no worker 2", "has 2"});
}

}  // namespace
}  // namespace monograph
