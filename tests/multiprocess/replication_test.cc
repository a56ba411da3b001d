// Every way of replication on real daemons: the ways that keep in step give the same weights after
// each step, bit for bit.
#include "train/replication.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/thread.h"
#include "client/registries.h"
#include "examples/models/mnist_cnn.h"
#include "graph/batch_shards.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/input/input.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "train/strategy.h"
#include "train/trainer.h"

namespace monograph {
namespace {

constexpr int kWorkers = 3, kSteps = 20;
constexpr int64_t kBatch = 25;  // does not divide evenly
constexpr int64_t kPixels = 28 * 28, kSeed = 7;

using Weights = std::vector<std::map<std::string, Tensor>>;  // after each run, by name

struct Mode {
  const char* name;
  Replication replication;
  VariableUpdate update;
  const char* central = "";  // the one device of variables that are on one; empty: the first worker
};
constexpr Mode kInStep[] = {
    {"in_graph_parameter_server", Replication::kInGraph, VariableUpdate::kParameterServer},
    {"in_graph_replicated", Replication::kInGraph, VariableUpdate::kReplicated},
    {"in_graph_central", Replication::kInGraph, VariableUpdate::kCentral},
    {"in_graph_central_on_the_client", Replication::kInGraph, VariableUpdate::kCentral,
     "/job:client/replica:0/task:0/device:CPU:0"},
    {"between_graph_parameter_server", Replication::kBetweenGraph,
     VariableUpdate::kParameterServer},
    {"between_graph_replicated", Replication::kBetweenGraph, VariableUpdate::kReplicated}};

Strategy StrategyOf(const Mode& mode, const ClusterSpec& cluster, int rank) {
  const std::vector<std::string> workers = cluster.Tasks("worker");
  const bool ps = mode.update == VariableUpdate::kParameterServer;
  if (mode.replication == Replication::kInGraph) {
    if (mode.update == VariableUpdate::kReplicated) return MirroredStrategy(workers);
    if (!ps)
      return CentralStorageStrategy(workers, *mode.central == '\0' ? workers[0] : mode.central);
    return {.devices = workers, .options = {.variable_devices = cluster.Tasks("ps")}};
  }
  // The one with parameter servers, told to keep in step.
  Strategy strategy = ps ? ParameterServerStrategy(cluster, rank).value()
                         : MultiWorkerMirroredStrategy(cluster, rank).value();
  strategy.options.async = false;
  strategy.options.global_batch_size = kBatch;
  strategy.device_filters.clear();
  return strategy;
}

// What is trained, whatever the mode.
using FeedFn = std::function<Result<std::vector<Tensor>>(int tower, int64_t batch)>;
struct Job {
  ModelFn model;
  Optimizer optimizer;
  std::function<Outputs(const Scope& client, int64_t rows)> inputs;
  std::function<Result<FeedFn>(int shard, int num_shards)> feed;
  // Instead of reading the weights: what the first client does after each step.
  std::function<void(int64_t step)> after_step = {};
  std::optional<LossScaleOptions> loss_scale = {};
  int steps_per_run = 1;
  DType gradient_dtype = DT_INVALID;
};

// Trains as client `rank` of the mode; the weights after each run of steps.
Result<Weights> TrainAsClient(const Mode& mode, const ClusterSpec& cluster, int rank,
                              const Job& job) {
  Strategy strategy = StrategyOf(mode, cluster, rank);
  strategy.options.loss_scale = job.loss_scale;
  strategy.options.gradient_dtype = job.gradient_dtype;
  const int clients = strategy.options.num_workers;
  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(kSeed);
  const Scope here = root.WithDevice("/job:client/task:0");
  const int64_t rows = RowsByShares(
      kBatch, std::vector<int64_t>(static_cast<size_t>(clients), 1))[static_cast<size_t>(rank)];
  const Outputs feeds = job.inputs(here, rows);
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      strategy.Replicate(root, feeds, job.model, job.optimizer));
  MG_ASSIGN_OR_RETURN(const FeedFn feed, job.feed(rank, clients));
  MG_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      Session::Connect(cluster, graph, {.device_filters = strategy.device_filters}));
  Trainer trainer(session.get(), step, {feeds}, feed, {.steps_per_run = job.steps_per_run});
  MG_RETURN_IF_ERROR(trainer.Start());
  Outputs values;
  for (const ModelVariable& variable : step.variables) values.push_back(variable.value);
  if (step.loss_scale.valid()) values.push_back(step.loss_scale);
  Weights weights;
  for (int64_t until = job.steps_per_run; until <= kSteps; until += job.steps_per_run) {
    int64_t made = 0;
    MG_RETURN_IF_ERROR(
        trainer.Train(until, [&made](const TrainedStep& run) { made += run.steps; }));
    EXPECT_EQ(made, job.steps_per_run);
    if (job.after_step) {
      if (rank == 0) job.after_step(until);
      weights.emplace_back();
      continue;
    }
    // The next update needs this client's gradients: nobody changes the variables meanwhile.
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> read, session->Run({}, values));
    std::map<std::string, Tensor>& now = weights.emplace_back();
    for (size_t i = 0; i < read.size(); ++i)
      now[i < step.variables.size() ? step.variables[i].name : "loss_scale"] = read[i];
  }
  return weights;
}

// All clients of the mode; what the chief saw.
Weights TrainIn(const Mode& mode, const ClusterSpec& cluster, const Job& job) {
  const int clients = mode.replication == Replication::kInGraph ? 1 : kWorkers;
  std::vector<Result<Weights>> results(static_cast<size_t>(clients), Weights());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < clients; ++rank) {
    threads.push_back(StartThread("client", [&, rank] {
      results[static_cast<size_t>(rank)] = TrainAsClient(mode, cluster, rank, job);
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

Job Images(DType compute = DT_FLOAT) {
  const examples::MnistCnn model{
      .conv1 = 4, .conv2 = 8, .fc = 32, .dropout = 0.5, .seed = kSeed, .compute = compute};
  return {.model = model.Training(),
          .optimizer = Adam(1e-2),
          .inputs =
              [](const Scope& client, int64_t rows) {
                return Outputs{Placeholder(client.WithOpName("images"), DT_FLOAT, {rows, kPixels}),
                               Placeholder(client.WithOpName("labels"), DT_INT32, {rows})};
              },
          .feed = [](int shard, int num_shards) -> Result<FeedFn> {
            MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> data,
                                LoadDataset({.name = "synthetic", .seed = kSeed}));
            MG_ASSIGN_OR_RETURN(std::shared_ptr<BatchStream> batches,
                                BatchStream::Make(std::move(data), {.batch_size = kBatch,
                                                                    .seed = kSeed,
                                                                    .shard = shard,
                                                                    .num_shards = num_shards}));
            return FeedFn([batches](int, int64_t batch) -> Result<std::vector<Tensor>> {
              MG_ASSIGN_OR_RETURN(Batch fed, batches->Get(batch));
              return std::vector<Tensor>{std::move(fed.images), std::move(fed.labels)};
            });
          }};
}

constexpr int64_t kDimensions = 8;

// The model of examples/embedding_main.cc: a rating is the product of a user's and a film's vector,
// and, so that something is whole, an offset.
Job Ratings(int64_t users, int64_t films, const Optimizer& optimizer) {
  const auto model = [=](Scope& tower, std::span<const Output> batch,
                         ModelVariables& variables) -> Result<Outputs> {
    const Output user =
        variables.Lookup("users", {users, kDimensions}, Initial::TruncatedNormal(0.5), batch[0]);
    const Output film =
        variables.Lookup("films", {films, kDimensions}, Initial::TruncatedNormal(0.5), batch[1]);
    const Output offset = variables.Get("offset", Shape{}, Initial::Constant(0.1));
    const Output guess = Add(tower, Sum(tower, Mul(tower, user, film), {1}), offset);
    return Outputs{ReduceMean(tower, SquaredDifference(tower, guess, batch[2]))};
  };
  return {.model = model,
          .optimizer = optimizer,
          .inputs =
              [](const Scope& client, int64_t rows) {
                return Outputs{Placeholder(client.WithOpName("users"), DT_INT32, {rows}),
                               Placeholder(client.WithOpName("films"), DT_INT32, {rows}),
                               Placeholder(client.WithOpName("ratings"), DT_FLOAT, {rows})};
              },
          .feed = [=](int shard, int num_shards) -> Result<FeedFn> {
            return FeedFn([=](int, int64_t batch) -> Result<std::vector<Tensor>> {
              const int64_t begin = kBatch * shard / num_shards,
                            end = kBatch * (shard + 1) / num_shards;
              std::vector<int32_t> user, film;
              std::vector<float> rating;
              for (int64_t i = begin; i < end; ++i) {
                // Some ids come more than once, on one replica and on several.
                const int64_t k = batch * 7919 + i * i;
                user.push_back(static_cast<int32_t>(k % users));
                film.push_back(static_cast<int32_t>(k * 31 % (i % 3 == 0 ? 2 : films)));
                rating.push_back(static_cast<float>(k % 17) / 7.0f);
              }
              return std::vector<Tensor>{Tensor::FromValues<int32_t>({end - begin}, user),
                                         Tensor::FromValues<int32_t>({end - begin}, film),
                                         Tensor::FromValues<float>({end - begin}, rating)};
            });
          }};
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
    const Weights weights = TrainIn(mode, cluster.spec(), Images());
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

TEST(ReplicationInRuns, OfFiveStepsGivesTheBitsOfSingleOnesWhereverNoStepWaitsForAChief) {
  TestCluster cluster({.ps = 2, .workers = kWorkers});
  const Weights single = TrainIn(kInStep[0], cluster.spec(), Images());
  ASSERT_EQ(single.size(), static_cast<size_t>(kSteps));
  Job job = Images();
  job.steps_per_run = 5;
  Weights expected;
  for (size_t step = 4; step < kSteps; step += 5) expected.push_back(single[step]);
  for (const Mode& mode : kInStep) {
    TestCluster own({.ps = 2, .workers = kWorkers});
    if (mode.replication == Replication::kBetweenGraph &&
        mode.update == VariableUpdate::kParameterServer) {
      ExpectError(TrainAsClient(mode, own.spec(), 0, job).status(), Code::kInvalidArgument,
                  {"steps per run", "chief"});
      continue;
    }
    EXPECT_EQ(Difference(expected, TrainIn(mode, own.spec(), job)), "") << mode.name;
  }
}

TEST(ReplicationInHalf, ScalesTheLossAndGivesTheSameBitsInEveryWayThatKeepsInStep) {
  Weights expected;
  for (const Mode& mode : kInStep) {
    TestCluster cluster({.ps = 2, .workers = kWorkers});
    Job job = Images(DT_HALF);
    job.loss_scale = {.initial = 0x1p22, .growth_steps = 3, .largest = 0x1p22};
    const Weights weights = TrainIn(mode, cluster.spec(), job);
    ASSERT_EQ(weights.size(), static_cast<size_t>(kSteps)) << mode.name;
    if (expected.empty()) {
      expected = weights;
      int halved = 0, doubled = 0, kept = 0;
      for (size_t step = 1; step < weights.size(); ++step) {
        const auto before = weights[step - 1].at("loss_scale").scalar<float>(),
                   after = weights[step].at("loss_scale").scalar<float>();
        halved += after == before / 2;
        doubled += after == before * 2;
        kept += after == before;
      }
      EXPECT_GT(halved, 0);
      EXPECT_GT(doubled, 0);
      EXPECT_GT(kept, 0);
      EXPECT_EQ(halved + doubled + kept, kSteps - 1);
      EXPECT_NE(Difference({weights[kSteps - 2]}, {weights[kSteps - 1]}), "");
    }
    EXPECT_EQ(Difference(expected, weights), "") << mode.name;
  }
}

uint64_t BytesSent(TestCluster& cluster) {
  uint64_t bytes = 0;
  for (int task = 0; task < 2; ++task) bytes += cluster.StatusOf("ps", task).bytes_sent();
  for (int task = 0; task < kWorkers; ++task)
    bytes += cluster.StatusOf("worker", task).bytes_sent();
  return bytes;
}

// The greatest difference of two runs' weights at the end.
float Apart(const Weights& a, const Weights& b) {
  float apart = 0;
  for (const auto& [name, value] : a.back()) {
    const auto x = value.values<float>(), y = b.back().at(name).values<float>();
    for (size_t i = 0; i < x.size(); ++i) apart = std::max(apart, std::abs(x[i] - y[i]));
  }
  return apart;
}

TEST(ReplicationInBfloat16, MovesGradientsInHalfTheBytesAndLearnsNearlyTheSame) {
  Weights whole, shared, reduced;
  for (const Mode& mode : kInStep) {
    SCOPED_TRACE(mode.name);
    const bool replicated = mode.update == VariableUpdate::kReplicated;
    uint64_t bytes[2];
    Weights weights[2];
    for (const bool narrow : {false, true}) {
      TestCluster cluster({.ps = 2, .workers = kWorkers});
      Job job = Images();
      job.optimizer = GradientDescent(0.05);
      if (narrow) job.gradient_dtype = DT_BFLOAT16;
      const uint64_t before = BytesSent(cluster);
      weights[narrow] = TrainIn(mode, cluster.spec(), job);
      bytes[narrow] = BytesSent(cluster) - before;
      ASSERT_EQ(weights[narrow].size(), static_cast<size_t>(kSteps));
    }
    EXPECT_EQ(Difference(whole.empty() ? whole = weights[0] : whole, weights[0]), "");
    Weights& same = replicated ? reduced : shared;
    EXPECT_EQ(Difference(same.empty() ? same = weights[1] : same, weights[1]), "");
    // How often the gradients of a variable travel in a step: to its task or, since these are
    // small, from each worker to all others.
    const bool beside_one = mode.update == VariableUpdate::kCentral && *mode.central == '\0';
    const int times = replicated ? kWorkers * (kWorkers - 1) : kWorkers - (beside_one ? 1 : 0);
    size_t variables = 0;
    for (const auto& [name, value] : weights[0].back()) variables += value.bytes();
    const auto expected = static_cast<double>(kSteps * times) * static_cast<double>(variables) / 2;
    EXPECT_NEAR(static_cast<double>(bytes[0] - bytes[1]) / expected, 1, 0.05);
    const float apart = Apart(weights[0], weights[1]);
    EXPECT_GT(apart, 0);
    EXPECT_LT(apart, 0.01);
  }
}

TEST(ReplicationOfRows, GivesTheSameBitsInEveryWayThatKeepsInStep) {
  Weights expected;
  for (const Mode& mode : kInStep) {
    TestCluster cluster({.ps = 2, .workers = kWorkers});
    const Weights weights = TrainIn(mode, cluster.spec(), Ratings(57, 31, Adagrad(0.5)));
    ASSERT_EQ(weights.size(), static_cast<size_t>(kSteps)) << mode.name;
    if (expected.empty()) {
      expected = weights;
      EXPECT_NE(Difference({expected[0]}, {expected[1]}), "") << "the weights do not change";
    }
    EXPECT_EQ(Difference(expected, weights), "") << mode.name;
  }
}

TEST(ReplicationOfRows, MovesWhatTheBatchTouchesAndNotTheTableInEveryWayThatKeepsInStep) {
  constexpr int64_t kUsers = 100'000, kFilms = 40'000;
  constexpr uint64_t kTableBytes = (kUsers + kFilms) * kDimensions * sizeof(float);
  for (const Mode& mode : kInStep) {
    TestCluster cluster({.ps = 2, .workers = kWorkers});
    // Between two steps of the first client; the others are at most a step before or behind.
    constexpr int64_t kFrom = 4;
    uint64_t first = 0, last = 0;
    Job job = Ratings(kUsers, kFilms, Adagrad(0.5));
    job.after_step = [&](int64_t step) {
      if (step == kFrom) first = BytesSent(cluster);
      if (step == kSteps) last = BytesSent(cluster);
    };
    ASSERT_EQ(TrainIn(mode, cluster.spec(), job).size(), static_cast<size_t>(kSteps)) << mode.name;
    const uint64_t steps = kSteps - kFrom, bytes = last - first;
    // Rows of both tables, there or back, in the steps that were surely whole.
    EXPECT_GT(bytes, (steps - 2) * kBatch * kDimensions * sizeof(float)) << mode.name;
    EXPECT_LT(bytes, steps * kTableBytes / 50) << mode.name;
  }
}

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
  // Errors name workers by their tasks, which are not their ranks where tasks are left out.
  const ClusterSpec sparse =
      ClusterSpec::FromJson(R"({"worker": {"0": "localhost:2", "2": "localhost:3"}})", "test")
          .value();
  EXPECT_EQ(MultiWorkerMirroredStrategy(sparse, 1).value().options.worker_names,
            (std::vector<std::string>{"/job:worker/task:0", "/job:worker/task:2"}));
}

}  // namespace
}  // namespace monograph
