// Synchronous training by three clients of one cluster, with variables on two parameter servers.
#include "train/sync_replicas.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "tests/ops/testing.h"
#include "train/coordinator.h"

namespace monograph {
namespace {

constexpr int kFeatures = 5, kRows = 4;
const std::vector<std::string> kBothPs = {"/job:ps/task:0", "/job:ps/task:1"};

// Rows of worker `rank` in step `step`.
Tensor Images(int rank, int step) {
  return testing::Random<float>({kRows, kFeatures}, static_cast<uint64_t>(100 * step + rank + 1));
}
Tensor Labels(int rank, int step) {
  return testing::Random<float>({kRows, 1}, static_cast<uint64_t>(100 * step + rank + 50));
}

struct Model {
  ModelVariable weights, bias, global_step;

  Model(const Scope& root, const std::vector<std::string>& homes) {
    const auto on = [&](size_t i) { return root.WithDevice(homes[i % homes.size()]); };
    weights =
        MakeVariable(on(0), "weights", Const(on(0), testing::Random<float>({kFeatures, 1}, 9)));
    bias = MakeVariable(on(1), "bias", Const(on(1), {0.5f}));
    global_step = MakeVariable(on(0), "global_step", Const(on(0), int64_t{0}));
  }
  std::vector<ModelVariable> variables() const { return {weights, bias}; }

  Output Loss(const Scope& scope, const Output& x, const Output& y) const {
    const Output error = Sub(scope, Add(scope, MatMul(scope, x, weights.value), bias.value), y);
    return Mean(scope, Square(scope, error), {0, 1});
  }
};

// One worker's client.
struct SyncWorker {
  Graph graph = NewGraph();
  Scope root{&graph};
  Model model;
  Output x, y;
  SyncReplicasStep step;
  std::unique_ptr<Session> session;

  SyncWorker(const SyncReplicasOptions& options, double share, const Optimizer& optimizer)
      : model(root, kBothPs) {
    const Scope mine = root.SubScope("replica").WithDevice("/job:worker/task:0");
    x = Placeholder(mine, DT_FLOAT, {-1, kFeatures});
    y = Placeholder(mine, DT_FLOAT, {-1, 1});
    const Output loss = Mul(mine, model.Loss(mine, x, y), ScalarConst(mine, share, DT_FLOAT));
    const auto pairs = ComputeGradients(mine, loss, model.variables());
    EXPECT_TRUE(pairs.ok()) << pairs.status();
    auto made = SyncReplicas(optimizer, options).ApplyGradients(root, *pairs, model.global_step);
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) step = *made;
  }
  Status Run(const Operation& target) {
    return session->Run({}, {}, {target}, {.timeout = 20s}).status();
  }
  Status Train(int rank, int number, std::chrono::milliseconds timeout = 20s) {
    return session
        ->Run({{x, Images(rank, number)}, {y, Labels(rank, number)}}, {}, {step.train},
              {.timeout = timeout})
        .status();
  }
  std::vector<Tensor> State() {
    return session->Run({}, {model.weights.value, model.bias.value, model.global_step.value}, {})
        .value();
  }
};

class SyncReplicasTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster({.ps = 2, .workers = 1}); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }

  // Makes `count` clients, of which the first is the chief; all are ready to train.
  void Begin(int count, SyncReplicasOptions options, double share = 1) {
    options.name = "sync_" + std::to_string(++runs_);
    for (int rank = 0; rank < count; ++rank) {
      options.rank = rank;
      workers_.push_back(std::make_unique<SyncWorker>(options, share, Adam(0.05)));
      workers_.back()->session = cluster_->Connect(workers_.back()->graph);
    }
    if (count == 0) return;
    auto early = workers_.back()->session->Run({}, {workers_.back()->step.ready});
    ASSERT_TRUE(early.ok()) << early.status();
    EXPECT_FALSE(early->at(0).scalar<bool>());
    const Status initialised = chief().Run(chief().step.init);
    ASSERT_TRUE(initialised.ok()) << initialised;
    auto runner = SyncReplicasRunner::Start(chief().session.get(), chief().step);
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = std::move(runner).value();
    for (auto& worker : workers_) {
      EXPECT_TRUE(worker->session->Run({}, {worker->step.ready}).value()[0].scalar<bool>());
      const Status status = worker->Run(worker->step.local_init);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  ~SyncReplicasTest() override {
    if (runner_ != nullptr) (void)runner_->Close();
    for (auto& worker : workers_) {
      if (worker->session != nullptr) (void)worker->session->Reset();
      break;
    }
  }
  SyncWorker& chief() { return *workers_[0]; }

  // Each of `ranks` trains `steps` steps in a thread of its own.
  std::vector<std::future<Status>> TrainAll(const std::vector<int>& ranks, int steps) {
    std::vector<std::future<Status>> threads;
    for (int rank : ranks) {
      threads.push_back(std::async(std::launch::async, [this, rank, steps]() -> Status {
        for (int i = 0; i < steps; ++i)
          MG_RETURN_IF_ERROR(workers_[static_cast<size_t>(rank)]->Train(rank, i));
        return Status();
      }));
    }
    return threads;
  }

  static TestCluster* cluster_;
  static int runs_;
  std::vector<std::unique_ptr<SyncWorker>> workers_;
  std::unique_ptr<SyncReplicasRunner> runner_;
};
TestCluster* SyncReplicasTest::cluster_ = nullptr;
int SyncReplicasTest::runs_ = 0;

// The same training by one client in one process: N losses, gradients added in order.
std::vector<Tensor> InGraph(int replicas, int steps) {
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Model model(root, {""});
  std::vector<Feed> feeds;
  std::vector<Outputs> parts(2);
  std::vector<Output> x, y;
  for (int i = 0; i < replicas; ++i) {
    x.push_back(Placeholder(root, DT_FLOAT, {-1, kFeatures}));
    y.push_back(Placeholder(root, DT_FLOAT, {-1, 1}));
    const Output loss = Mul(root, model.Loss(root, x.back(), y.back()),
                            ScalarConst(root, 1.0 / replicas, DT_FLOAT));
    const auto pairs = ComputeGradients(root, loss, model.variables()).value();
    for (size_t v = 0; v < 2; ++v) parts[v].push_back(pairs[v].gradient);
  }
  std::vector<GradientAndVariable> sums;
  for (size_t v = 0; v < 2; ++v)
    sums.push_back(
        {.gradient = AddN(root, parts[v]), .indices = {}, .variable = model.variables()[v]});
  std::vector<Operation> initializers = {model.weights.initializer, model.bias.initializer,
                                         model.global_step.initializer};
  const Operation update = Adam(0.05).ApplyGradients(root, sums, &initializers);
  EXPECT_TRUE(root.ok()) << root.status();
  auto session = Session::Local(graph).value();
  EXPECT_TRUE(session->Run({}, {}, initializers).ok());
  for (int step = 0; step < steps; ++step) {
    std::vector<Feed> batch;
    for (int i = 0; i < replicas; ++i) {
      batch.emplace_back(x[static_cast<size_t>(i)], Images(i, step));
      batch.emplace_back(y[static_cast<size_t>(i)], Labels(i, step));
    }
    EXPECT_TRUE(session->Run(batch, {}, {update}).ok());
  }
  return session->Run({}, {model.weights.value, model.bias.value}).value();
}

TEST_F(SyncReplicasTest, ThreeClientsTrainWithTheBitsOfOne) {
  constexpr int kSteps = 20;
  Begin(3, {.replicas_to_aggregate = 3, .weighted = true}, 1.0 / 3);
  for (auto& thread : TrainAll({2, 0, 1}, kSteps)) {
    const Status status = thread.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  const std::vector<Tensor> got = workers_[1]->State(), expected = InGraph(3, kSteps);
  EXPECT_EQ(got[2].scalar<int64_t>(), kSteps);
  EXPECT_TRUE(BitEqual(got[0], expected[0])) << got[0].ToString() << "\n" << expected[0].ToString();
  EXPECT_TRUE(BitEqual(got[1], expected[1])) << got[1].ToString() << "\n" << expected[1].ToString();
}

TEST_F(SyncReplicasTest, TheMeanOfUnweightedGradientsFollowsOneClientToRounding) {
  Begin(3, {.replicas_to_aggregate = 3});
  for (auto& thread : TrainAll({0, 1, 2}, 5)) EXPECT_TRUE(thread.get().ok());
  const std::vector<Tensor> got = chief().State(), expected = InGraph(3, 5);
  for (int i = 0; i < kFeatures; ++i)
    EXPECT_NEAR(got[0].data<float>()[i], expected[0].data<float>()[i], 1e-5);
}

TEST_F(SyncReplicasTest, ABackupWorkerCoversForOneThatIsDead) {
  Begin(3, {.replicas_to_aggregate = 2, .total_num_replicas = 3});
  ASSERT_TRUE(workers_[2]->session->Close().ok());
  for (auto& thread : TrainAll({0, 1}, 5)) {
    const Status status = thread.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(chief().State()[2].scalar<int64_t>(), 5);
  // It comes back and takes part again.
  workers_[2]->session = cluster_->Connect(workers_[2]->graph);
  ASSERT_TRUE(workers_[2]->Run(workers_[2]->step.local_init).ok());
  for (auto& thread : TrainAll({1, 2}, 3)) {
    const Status status = thread.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(chief().State()[2].scalar<int64_t>(), 8);
}

TEST_F(SyncReplicasTest, OnceTheChiefIsGoneNobodyWaitsAndWhoIsBehindCatchesUp) {
  Begin(3, {.replicas_to_aggregate = 2,
            .total_num_replicas = 3,
            .replica_names = {"/job:worker/task:0", "/job:worker/task:1", "/job:worker/task:2"}});
  for (auto& thread : TrainAll({0, 1}, 3)) EXPECT_TRUE(thread.get().ok());
  auto waiting = std::async(std::launch::async, [this] { return workers_[1]->Train(1, 3); });
  ASSERT_TRUE(cluster_->WaitForStatus("ps", 1, [&](const auto&) {
    return chief().session->Run({}, {chief().step.arrived[1]}).value()[0].elements() == 1;
  }));
  (void)runner_->Close();
  ASSERT_TRUE(chief().session->Close().ok());
  ExpectError(waiting.get(), Code::kUnavailable,
              {"the chief (/job:worker/task:0)", "has ended its session"});
  ExpectError(workers_[1]->Train(1, 3), Code::kUnavailable, {"the chief"});
  const Status late = workers_[2]->Train(2, 0);  // its step is over
  EXPECT_TRUE(late.ok()) << late;
}

TEST_F(SyncReplicasTest, AGradientThatComesTooLateIsDroppedAndItsWorkerGoesOn) {
  Begin(3, {.replicas_to_aggregate = 2, .total_num_replicas = 3});
  for (auto& thread : TrainAll({0, 1}, 3)) EXPECT_TRUE(thread.get().ok());
  const std::vector<Tensor> before = chief().State();
  // Its gradient is of step 0; the gate is open for it.
  ASSERT_TRUE(workers_[2]->Train(2, 0).ok());
  const std::vector<Tensor> after = chief().State();
  EXPECT_EQ(after[2].scalar<int64_t>(), 3);
  EXPECT_TRUE(BitEqual(before[0], after[0]));
}

TEST_F(SyncReplicasTest, AMissingReplicaIsNamedToEverybodyWhoWaits) {
  Begin(3, {.replicas_to_aggregate = 3, .operation_timeout = 2s});
  for (auto& thread : TrainAll({0, 2}, 1)) {
    ExpectError(
        thread.get(), Code::kDeadlineExceeded,
        {"update 1 of", "has the gradients of 2 of 3 replicas (0, 2)", "missing: replica 1"});
  }
  EXPECT_EQ(runner_->Close().code(), Code::kDeadlineExceeded);
}

TEST_F(SyncReplicasTest, AWorkerThatRunsOutOfTimeCanAskWhatItWaitedFor) {
  Begin(2, {.replicas_to_aggregate = 2});
  const Status status = workers_[1]->Train(1, 0, 1s);
  ExpectError(status, Code::kDeadlineExceeded, {"did not end within"});
  ExpectError(ExplainWait(workers_[1]->session.get(), workers_[1]->step, status),
              Code::kDeadlineExceeded, {"gradients of 1 of 2 replicas (1)", "missing: replica 0"});
}

TEST_F(SyncReplicasTest, AnUpdateThatWaitsHoldsUpNothingElseInTheChiefsSession) {
  Begin(2, {.replicas_to_aggregate = 2});
  for (int i = 0; i < 150; ++i) {
    const auto arrived = chief().session->Run({}, {chief().step.arrived[0]}, {}, {.timeout = 20s});
    ASSERT_TRUE(arrived.ok()) << i << ": " << arrived.status();
  }
  for (auto& thread : TrainAll({0, 1}, 3)) EXPECT_TRUE(thread.get().ok());
  EXPECT_EQ(chief().State()[2].scalar<int64_t>(), 3);
}

TEST_F(SyncReplicasTest, TheEndOfTheDataEndsEverybody) {
  Begin(3, {.replicas_to_aggregate = 3});
  Coordinator coordinator;
  for (int rank : {0, 1}) {
    coordinator.Start("worker " + std::to_string(rank), [this, rank]() -> Status {
      for (int i = 0;; ++i) MG_RETURN_IF_ERROR(workers_[static_cast<size_t>(rank)]->Train(rank, i));
    });
  }
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(workers_[2]->Train(2, i).ok());
  ASSERT_TRUE(workers_[2]->Run(workers_[2]->step.finish).ok());
  EXPECT_TRUE(coordinator.Join(20s).ok());
  EXPECT_TRUE(coordinator.ShouldStop());
  ExpectError(workers_[1]->Train(1, 2), Code::kOutOfRange, {"no more data"});
  EXPECT_TRUE(runner_->Close().ok());
  EXPECT_EQ(chief().State()[2].scalar<int64_t>(), 2);
}

TEST_F(SyncReplicasTest, AChiefThatStartsAnewForgetsTheOldRun) {
  Begin(2, {.replicas_to_aggregate = 2});
  for (auto& thread : TrainAll({0, 1}, 3)) EXPECT_TRUE(thread.get().ok());
  // A gradient of the old run is left behind, its worker waits.
  auto waiting = std::async(std::launch::async, [this] { return workers_[1]->Train(1, 3); });
  ASSERT_TRUE(cluster_->WaitForStatus("ps", 1, [&](const auto&) {
    return chief().session->Run({}, {chief().step.arrived[1]}).value()[0].elements() == 1;
  }));
  (void)runner_->Close();
  ASSERT_TRUE(chief().session->Close().ok());
  chief().session = cluster_->Connect(chief().graph);
  ASSERT_TRUE(chief().Run(chief().step.init).ok());
  ExpectError(waiting.get(), Code::kUnavailable, {"the chief", "has ended its session"});
  ExpectError(workers_[1]->Train(1, 3), Code::kAborted, {"local_init"});
  runner_ = SyncReplicasRunner::Start(chief().session.get(), chief().step).value();
  for (auto& worker : workers_) ASSERT_TRUE(worker->Run(worker->step.local_init).ok());
  for (auto& thread : TrainAll({0, 1}, 2)) {
    const Status status = thread.get();
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(chief().State()[2].scalar<int64_t>(), 2);
}

TEST(SyncReplicas, OptionsThatMakeNoSenseAreRefused) {
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Model model(root, {""});
  const std::vector<GradientAndVariable> pairs = {
      {.gradient = model.bias.value, .indices = {}, .variable = model.bias}};
  const auto make = [&](const SyncReplicasOptions& options, const ModelVariable& step) {
    return SyncReplicas(Adam(0.1), options).ApplyGradients(root, pairs, step).status();
  };
  ExpectError(make({}, model.global_step), Code::kInvalidArgument, {"replicas_to_aggregate is 0"});
  ExpectError(make({.replicas_to_aggregate = 3, .total_num_replicas = 2}, model.global_step),
              Code::kInvalidArgument, {"there are 2 replicas in total"});
  ExpectError(make({.replicas_to_aggregate = 3, .rank = 3}, model.global_step),
              Code::kInvalidArgument, {"rank 3 is not in [0, 3)"});
  ExpectError(make({.replicas_to_aggregate = 1}, model.bias), Code::kInvalidArgument,
              {"global_step 'bias' must be an int64 variable"});
}

}  // namespace
}  // namespace monograph
