// Tables in parts on two parameter servers: the same bits as in one process, and what a step moves
// follows its batch, not the table.
#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tests/train/own_rule.h"
#include "train/device_setter.h"
#include "train/embedding.h"
#include "train/replication.h"
#include "train/tower_gradients.h"
#include "train/variable_scope.h"

namespace monograph {
namespace {

constexpr int64_t kColumns = 16;

// A step of two towers, each of which looks up its own ids.
struct Training {
  explicit Training(const std::vector<std::string>& workers, const ClusterSpec* cluster,
                    int64_t rows, const Optimizer& optimizer)
      : graph(NewGraph()), root(Scope(&graph).WithSeed(3)) {
    const VariableScope model = VariableScope(root, &collections)
                                    .Open("model", {.reuse = Reuse::kAutoReuse,
                                                    .initializer = RandomUniformInitializer(-1, 1),
                                                    .partitioner = FixedSizePartitioner(2)});
    std::vector<std::vector<GradientAndVariable>> gradients;
    for (size_t i = 0; i < workers.size(); ++i) {
      VariableScope tower = model.NameScope("tower_" + std::to_string(i));
      tower = cluster == nullptr
                  ? tower.WithDevice(workers[i])
                  : tower.WithDeviceFunction(
                        ReplicaDeviceSetter(*cluster, {.worker_device = workers[i]}).value());
      const Scope& scope = tower.scope();
      table = tower.Get("table", {rows, kColumns});
      ids.push_back(Placeholder(scope, DT_INT64, {-1}));
      const Output found = EmbeddingLookup(scope, table, ids.back());
      const Output loss = ReduceMean(scope, SquaredDifference(scope, found, Const(scope, 0.25f)));
      gradients.push_back(ComputeGradients(scope, loss, table.parts).value());
    }
    const auto mean = AverageGradients(root, gradients).value();
    EXPECT_TRUE(mean[0].sparse() && mean[1].sparse());
    std::vector<Operation> initializers = {GlobalVariablesInitializer(root, collections)};
    train = optimizer.ApplyGradients(root, mean, &initializers);
    init = Group(root, initializers);
    EXPECT_TRUE(root.ok()) << root.status();
  }

  // Step `number`; each tower looks up so many rows of the table.
  void Step(Session& session, int64_t number, int64_t count, int64_t rows) {
    std::vector<Feed> feeds;
    for (size_t i = 0; i < ids.size(); ++i) {
      Tensor batch = Tensor::Allocate(DT_INT64, {count}).value();
      for (int64_t k = 0; k < count; ++k)
        batch.data<int64_t>()[k] =
            (number * 7919 + (k + 1) * static_cast<int64_t>(i + 1) * 31) % rows;
      feeds.emplace_back(ids[i], batch);
    }
    const auto done = session.Run(feeds, {}, {train});
    ASSERT_TRUE(done.ok()) << done.status();
  }

  Graph graph;
  Scope root;
  Collections collections;
  ScopedVariable table;
  Outputs ids;
  Operation init, train;
};

Tensor TableAfter(Session& session, Training& training, int64_t rows) {
  EXPECT_TRUE(session.Run({}, {}, {training.init}).ok());
  for (int64_t step = 0; step < 5; ++step) training.Step(session, step, 40, rows);
  const auto value = session.Run({}, {training.table.value});
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? (*value)[0] : Tensor();
}

TEST(SparseOnCluster, TablesOnTwoParameterServersGetTheBitsOfOneProcess) {
  constexpr int64_t kRows = 101;
  TestCluster cluster({.ps = 2, .workers = 2});
  for (const auto& optimizer : {GradientDescent(0.5), Momentum(0.1, 0.9), Adagrad(0.3),
                                RMSProp(0.01), Adam(0.05), SignMomentum(0.01, 0.9)}) {
    Training here({"/device:CPU:0", "/device:CPU:1"}, nullptr, kRows, optimizer);
    auto local = Session::Local(here.graph, {.device_count = {{kCpu, 2}}}).value();
    const Tensor expected = TableAfter(*local, here, kRows);
    Training there(cluster.spec().Tasks("worker"), &cluster.spec(), kRows, optimizer);
    auto session = cluster.Connect(there.graph);
    EXPECT_EQ(there.graph.device(there.table.parts[1].handle.node()).ToString(), "/job:ps/task:1");
    EXPECT_TRUE(SameBits(expected, TableAfter(*session, there, kRows))) << optimizer.name();
    ASSERT_TRUE(session->Reset().ok());
  }
}

TEST(SparseOnCluster, ClientsShareTheirTablesByName) {
  constexpr int64_t kRows = 50;
  TestCluster cluster({.ps = 2, .workers = 2});
  const auto client = [&](int worker) {
    return Training({"/job:worker/task:" + std::to_string(worker)}, &cluster.spec(), kRows,
                    Adagrad(0.3));
  };
  Training first = client(0), second = client(1);
  auto session = cluster.Connect(first.graph), other = cluster.Connect(second.graph);
  ASSERT_TRUE(session->Run({}, {}, {first.init}).ok());
  first.Step(*session, 1, 10, kRows);
  second.Step(*other, 2, 10, kRows);
  const auto seen = session->Run({}, {first.table.value}),
             seen_by_other = other->Run({}, {second.table.value});
  ASSERT_TRUE(seen.ok() && seen_by_other.ok()) << seen.status() << seen_by_other.status();
  EXPECT_TRUE(SameBits((*seen)[0], (*seen_by_other)[0]));
}

TEST(SparseOnCluster, WhatAStepMovesIsProportionalToItsRowsAndNotToTheTable) {
  constexpr int64_t kRows = 200'000;
  constexpr uint64_t kTableBytes = kRows * kColumns * sizeof(float);
  TestCluster cluster({.ps = 2, .workers = 2});
  Training training(cluster.spec().Tasks("worker"), &cluster.spec(), kRows, Adagrad(0.3));
  auto session = cluster.Connect(training.graph);
  ASSERT_TRUE(session->Run({}, {}, {training.init}).ok());
  const auto sent = [&] {
    uint64_t bytes = 0;
    for (const char* job : {"ps", "worker"})
      for (int task : {0, 1}) bytes += cluster.StatusOf(job, task).bytes_sent();
    return bytes;
  };
  // What all four daemons send in a step, over several.
  constexpr uint64_t kSteps = 8;
  const auto bytes_per_step = [&](int64_t rows) {
    training.Step(*session, 0, rows, kRows);  // whatever is set up once
    const uint64_t before = sent();
    for (uint64_t step = 1; step <= kSteps; ++step)
      training.Step(*session, static_cast<int64_t>(step), rows, kRows);
    return (sent() - before) / kSteps;
  };
  const uint64_t few = bytes_per_step(100), many = bytes_per_step(1000);
  EXPECT_LT(many, kTableBytes / 20);
  // Two workers; each row goes to its worker and its gradient comes back, with ids of 8 bytes.
  const uint64_t rows_of_many = 2 * 1000 * 2 * (kColumns * sizeof(float));
  EXPECT_GT(many, rows_of_many);
  EXPECT_LT(many, 2 * rows_of_many);
  EXPECT_LT(few, many / 4);
}

TEST(SparseOnCluster, ReplicateMovesRowsOfATableThatItsModelLooksUp) {
  constexpr int64_t kRows = 200'000;
  TestCluster cluster({.ps = 2, .workers = 2});
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Output ids = Placeholder(root, DT_INT64, {200});
  const auto step = Replicate(root, cluster.spec().Tasks("worker"), {ids},
                              [](Scope& tower, std::span<const Output> batch,
                                 ModelVariables& variables) -> Result<Outputs> {
                                const Output rows = variables.Lookup(
                                    "table", {kRows, kColumns}, Initial::Constant(0.5), batch[0]);
                                return Outputs{ReduceMean(tower, Square(tower, rows))};
                              },
                              Adagrad(0.1),
                              {.variable_devices = cluster.spec().Tasks("ps"),
                               .max_variable_bytes = kRows * kColumns * sizeof(float) / 2});
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_EQ(step->variables.size(), 2u);
  auto session = cluster.Connect(graph);
  ASSERT_TRUE(session->Run({}, {}, {step->init}).ok());
  Tensor batch = Tensor::Allocate(DT_INT64, {200}).value();
  for (int64_t i = 0; i < 200; ++i) batch.data<int64_t>()[i] = i * 997;
  const auto run = [&] {
    const auto ran = session->Run({{ids, batch}}, {step->results[0]}, {step->train});
    EXPECT_TRUE(ran.ok()) << ran.status();
    return ran.ok() ? (*ran)[0].scalar<float>() : 0;
  };
  const float first = run();
  EXPECT_FLOAT_EQ(first, 0.25f);
  uint64_t before = 0, after = 0;
  for (int task : {0, 1}) before += cluster.StatusOf("ps", task).bytes_sent();
  EXPECT_LT(run(), first);
  for (int task : {0, 1}) after += cluster.StatusOf("ps", task).bytes_sent();
  EXPECT_LT(after - before, kRows * kColumns * sizeof(float) / 100);
}

}  // namespace
}  // namespace monograph
