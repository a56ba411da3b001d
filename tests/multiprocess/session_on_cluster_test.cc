// Sessions on a cluster: variables that outlive them, containers, several clients, device filters,
// and what they print of the placement.
#include <unistd.h>

#include <algorithm>

#include "client/registries.h"
#include "executor/worker/task_status.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"
#include "tests/multiprocess/cluster_fixture.h"
#include "train/optimizer.h"

namespace monograph {
namespace {

class SessionOnCluster : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new TestCluster; }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void TearDown() override {
    // No test leaves state behind, in the daemons neither.
    Graph graph = NewGraph();
    EXPECT_TRUE(cluster_->Connect(graph)->Reset().ok());
  }
  static TestCluster* cluster_;
};
TestCluster* SessionOnCluster::cluster_ = nullptr;

TEST(SessionOnManyTasks, ALineOfTheLogIsForAWayNotForAPairOfTasks) {
  TestCluster cluster({.ps = 2, .workers = 8});
  Graph graph = NewGraph();
  ::testing::internal::CaptureStderr();
  cluster.Connect(graph);
  const std::string log = ::testing::internal::GetCapturedStderr();
  int lines = 0;
  for (size_t at = log.find("data plane: "); at != std::string::npos;
       at = log.find("data plane: ", at + 1))
    ++lines;
  EXPECT_GE(lines, 1) << log;
  EXPECT_LE(lines, 3) << log;
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 20) << log;
  EXPECT_NE(log.find("ps/0-1, worker/0-7\n"), std::string::npos) << log;
}

// A program of a client: a variable on the parameter server, and what may be done with it.
struct Counter {
  explicit Counter(const std::string& container = "")
      : graph(NewGraph()),
        root(&graph),
        ps(root.WithDevice(kPs)),
        handle(VarHandle(ps.WithOpName("counter"), DT_FLOAT, {}, container, "counter")) {
    init = AssignVariable(ps, handle, Const(ps, 10.0f));
    more = AssignAddVariable(ps, handle, Const(ps, 1.0f));
    value = Identity(root.WithDevice(kWorker0), ReadVariable(ps, handle));
    EXPECT_TRUE(root.ok()) << root.status();
  }
  float Value(Session& session) {
    auto values = session.Run({}, {value});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->at(0).scalar<float>() : -1;
  }
  Graph graph;
  Scope root, ps;
  Output handle;
  Operation init, more;
  Output value;
};

TEST_F(SessionOnCluster, VariablesOutliveTheirSessionAndASecondClientFindsThemByName) {
  Counter first, second;
  {
    auto session = cluster_->Connect(first.graph);
    ASSERT_TRUE(session->Run({}, {}, {first.init}).ok());
    ASSERT_TRUE(session->Run({}, {}, {first.more}).ok());
    ASSERT_TRUE(session->Close().ok());
  }
  auto session = cluster_->Connect(second.graph);
  EXPECT_EQ(second.Value(*session), 11.0f);
  // At the same time, too.
  auto other = cluster_->Connect(first.graph);
  ASSERT_TRUE(other->Run({}, {}, {first.more}).ok());
  EXPECT_EQ(second.Value(*session), 12.0f);
}

TEST_F(SessionOnCluster, AContainerIsolatesAndResetEmptiesIt) {
  Counter plain, mine("mine");
  auto a = cluster_->Connect(plain.graph), b = cluster_->Connect(mine.graph);
  ASSERT_TRUE(a->Run({}, {}, {plain.init}).ok());
  auto unset = b->Run({}, {mine.value});
  ExpectError(unset.status(), Code::kFailedPrecondition, {"counter"});
  ASSERT_TRUE(b->Run({}, {}, {mine.init}).ok());
  ASSERT_TRUE(b->Run({}, {}, {mine.more}).ok());
  EXPECT_EQ(plain.Value(*a), 10.0f);
  EXPECT_EQ(mine.Value(*b), 11.0f);
  ASSERT_TRUE(a->Reset({"mine"}).ok());
  EXPECT_EQ(plain.Value(*a), 10.0f);
  ExpectError(b->Run({}, {mine.value}).status(), Code::kFailedPrecondition,
              {"counter", "/job:ps/replica:0/task:0"});
  ASSERT_TRUE(a->Reset().ok());
  ExpectError(a->Run({}, {plain.value}).status(), Code::kFailedPrecondition, {"counter"});
}

TEST_F(SessionOnCluster, AContainerOfASessionEndsWithIt) {
  Counter plain, mine("mine");
  SessionOptions options;
  options.container = "mine";
  {
    auto session = cluster_->Connect(mine.graph, options);
    ASSERT_TRUE(session->Run({}, {}, {mine.init}).ok());
    auto other = cluster_->Connect(plain.graph);
    ASSERT_TRUE(other->Run({}, {}, {plain.init}).ok());
    EXPECT_EQ(mine.Value(*session), 10.0f);
    ASSERT_TRUE(session->Close().ok());
  }
  auto session = cluster_->Connect(mine.graph, options);
  ExpectError(session->Run({}, {mine.value}).status(), Code::kFailedPrecondition, {"counter"});
  auto other = cluster_->Connect(plain.graph);
  EXPECT_EQ(plain.Value(*other), 10.0f);
}

TEST_F(SessionOnCluster, AnUninitialisedVariableIsNamedWithItsTask) {
  Counter counter;
  auto session = cluster_->Connect(counter.graph);
  ExpectError(session->Run({}, {counter.value}).status(), Code::kFailedPrecondition,
              {"counter", "/job:ps/replica:0/task:0"});
}

TEST_F(SessionOnCluster, APlacementIsPrintedOnceAtTheClient) {
  for (const PlacementLog form :
       {PlacementLog::kFull, PlacementLog::kSummary, PlacementLog::kJson, PlacementLog::kDot}) {
    Counter counter;
    std::string text;
    SessionOptions options;
    options.log_device_placement = form;
    options.placement_sink = [&text](const std::string& part) { text += part; };
    auto session = cluster_->Connect(counter.graph, options);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
    ASSERT_TRUE(session->Run({}, {counter.value}).ok());
    const std::string line = "counter: (VarHandleOp): /job:ps/replica:0/task:0/device:CPU:0";
    if (form == PlacementLog::kFull) {
      const size_t at = text.find(line);
      ASSERT_NE(at, std::string::npos) << text;
      EXPECT_EQ(text.find(line, at + 1), std::string::npos) << "printed twice:\n" << text;
    }
    EXPECT_NE(text.find("/job:ps/replica:0/task:0"), std::string::npos) << text;
    EXPECT_NE(text.find("/job:worker/replica:0/task:0"), std::string::npos) << text;
  }
  for (const auto& [job, task] : {std::pair("ps", 0), std::pair("worker", 0)}) {
    EXPECT_EQ(cluster_->daemon(job, task).error().find("VarHandleOp"), std::string::npos);
  }
}

TEST_F(SessionOnCluster, ANodeGoesWhereItWasToldAndElsewhereIsAnError) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output here = Neg(root.WithOpName("here").WithDevice(kWorker1), Const(root, 1.0f));
  const Output nowhere =
      Neg(root.WithOpName("nowhere").WithDevice("/job:worker/task:7"), Const(root, 1.0f));
  auto session = cluster_->Connect(graph);
  ExpectError(session->Run({}, {nowhere}).status(), Code::kInvalidArgument,
              {"nowhere", "task:7", "/job:worker/replica:0/task:1"});

  Graph good = NewGraph();
  Scope scope(&good);
  const Output x = Placeholder(scope, DT_FLOAT, {});
  const Output y = Neg(scope.WithOpName("here").WithDevice(kWorker1), x);
  auto second = cluster_->Connect(good);
  ASSERT_TRUE(second->Run({{x, Tensor::Scalar(1.0f)}}, {y}).ok());
  EXPECT_EQ(second->DeviceOf(y)->ToString(), "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_TRUE(here.valid());
}

TEST_F(SessionOnCluster, DeviceFiltersHideTheOtherTasks) {
  Counter counter;
  SessionOptions options;
  options.device_filters = {"/job:ps", "/job:worker/task:0"};
  auto session = cluster_->Connect(counter.graph, options);
  for (const DeviceInfo& device : session->devices())
    EXPECT_FALSE(device.name.job == "worker" && device.name.task == 1);
  ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
  EXPECT_EQ(counter.Value(*session), 10.0f);
  EXPECT_EQ(cluster_->StatusOf("worker", 0).sessions(), 1);
  EXPECT_EQ(cluster_->StatusOf("worker", 1).sessions(), 0);
}

TEST_F(SessionOnCluster, ClosingFreesWhatDaemonsHoldAndALaterRunSaysSo) {
  Counter counter;
  auto session = cluster_->Connect(counter.graph);
  ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
  EXPECT_EQ(cluster_->StatusOf("ps", 0).sessions(), 1);
  ASSERT_TRUE(session->Close().ok());
  EXPECT_EQ(cluster_->StatusOf("ps", 0).sessions(), 0);
  ExpectError(session->Run({}, {}, {counter.init}).status(), Code::kFailedPrecondition, {"closed"});
  EXPECT_TRUE(session->Close().ok());
}

// Eight nodes on worker 1: each set of them that is fetched is a signature.
struct ManySignatures {
  ManySignatures()
      : graph(NewGraph()), root(&graph), x(Placeholder(root.WithDevice(kWorker1), DT_FLOAT, {})) {
    for (int i = 0; i < 8; ++i)
      nodes.push_back(Add(root.WithDevice(kWorker1), x, Const(root, static_cast<float>(i))));
    EXPECT_TRUE(root.ok()) << root.status();
  }
  std::vector<Output> Fetches(int set) const {
    std::vector<Output> fetches;
    for (int i = 0; i < 8; ++i) {
      if ((set >> i & 1) != 0) fetches.push_back(nodes[static_cast<size_t>(i)]);
    }
    return fetches;
  }
  Graph graph;
  Scope root;
  Output x;
  std::vector<Output> nodes;
};

TEST_F(SessionOnCluster, ASignaturePerStepDoesNotLeak) {
  ManySignatures many;
  auto session = cluster_->Connect(many.graph);
  const Callable held = session->MakeCallable({many.x}, many.Fetches(255)).value();
  const Tensor x = Tensor::Scalar(1.0f);
  for (int set = 1; set < 255; ++set) {
    auto values = session->Run({{many.x, x}}, many.Fetches(set));
    ASSERT_TRUE(values.ok()) << values.status();
  }
  // 64 that nobody held when the last one was made, that one, and the callable's.
  EXPECT_TRUE(cluster_->WaitForStatus("worker", 1, [](const auto& status) {
    return status.graphs() == 66;
  })) << cluster_->StatusOf("worker", 1).graphs();
  auto values = session->RunCallable(held, std::span(&x, 1));
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(7).scalar<float>(), 8.0f);
  values = session->Run({{many.x, x}}, many.Fetches(1));  // prepared anew
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_TRUE(session->Close().ok());
  EXPECT_EQ(cluster_->StatusOf("worker", 1).graphs(), 0);
}

TEST_F(SessionOnCluster, CallablesThatAreGoneGiveTheirGraphsBack) {
  ManySignatures many;
  auto session = cluster_->Connect(many.graph);
  std::vector<Callable> held;
  for (int set = 1; set <= 100; ++set)
    held.push_back(session->MakeCallable({many.x}, many.Fetches(set)).value());
  EXPECT_EQ(cluster_->StatusOf("worker", 1).graphs(), 100);
  held.clear();
  ASSERT_TRUE(session->MakeCallable({many.x}, many.Fetches(101)).ok());
  EXPECT_TRUE(cluster_->WaitForStatus("worker", 1,
                                      [](const auto& status) { return status.graphs() <= 65; }));
}

TEST_F(SessionOnCluster, AGraphThatOneTaskRefusesIsTakenBackFromTheOthers) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output here = Neg(root.WithDevice(kWorker0), Placeholder(root, DT_FLOAT, {-1}));
  // A kernel that no daemon makes.
  const Output there = Cast(root.WithDevice(kWorker1).WithOpName("refused"),
                            Placeholder(root, DT_FLOAT, {-1}), DT_STRING);
  ASSERT_TRUE(root.ok()) << root.status();
  auto session = cluster_->Connect(graph);
  for (int i = 0; i < 3; ++i) {
    ExpectError(session->MakeCallable({}, {here, there}).status(), Code::kUnimplemented,
                {"refused", "/job:worker/replica:0/task:1"});
  }
  EXPECT_TRUE(cluster_->WaitForStatus("worker", 0,
                                      [](const auto& status) { return status.graphs() == 0; }));
}

TEST_F(SessionOnCluster, ManyStepsByOneMessageGiveTheLastOnesResults) {
  Counter counter;
  const Output now =
      Identity(counter.root.WithDevice(kWorker1),
               ReadVariable(counter.ps.WithControlDependencies({counter.more}), counter.handle));
  auto session = cluster_->Connect(counter.graph);
  ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
  const Callable step = session->MakeCallable({}, {now}).value();
  const uint64_t before = cluster_->StatusOf("ps", 0).messages_received();
  RunMetadata metadata;
  auto values = session->RunCallable(step, {}, {.steps = 1000}, &metadata);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 1010.0f);
  EXPECT_EQ(metadata.step_id, 1001u);
  // 1000 / 16 rows.
  EXPECT_LE(cluster_->StatusOf("ps", 0).messages_received() - before, 63u + 5u);
  values = session->RunCallable(step, {});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 1011.0f);
  ExpectError(session->RunCallable(step, {}, {.steps = 0}).status(), Code::kInvalidArgument,
              {"steps is 0"});
  ExpectError(session->RunCallable(step, {}, {.trace = true, .steps = 2}).status(),
              Code::kInvalidArgument, {"trace"});
}

TEST_F(SessionOnCluster, EachStepOfARowMayHaveItsOwnFeedsAndNumber) {
  Counter counter;
  const Output amount = Placeholder(counter.root.WithDevice(kWorker1), DT_FLOAT, {});
  const Operation add = AssignAddVariable(counter.ps, counter.handle, amount);
  const Output now = ReadVariable(counter.ps.WithControlDependencies({add}), counter.handle);
  const Output twice = Mul(counter.root.WithDevice(kWorker0), amount,
                           Const(counter.root.WithDevice(kWorker0), 2.0f));
  ASSERT_TRUE(counter.root.ok()) << counter.root.status();
  auto session = cluster_->Connect(counter.graph);
  ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
  const Callable step = session->MakeCallable({amount}, {now, twice, amount}).value();
  std::vector<Tensor> feeds;
  for (int i = 1; i <= 40; ++i) feeds.push_back(Tensor::Scalar(static_cast<float>(i)));
  RunMetadata metadata;
  auto values =
      session->RunCallable(step, feeds, {.step = 1000, .steps = 40, .step_stride = 64}, &metadata);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 10.0f + 40 * 41 / 2.0f);
  EXPECT_EQ(values->at(1).scalar<float>(), 80.0f);
  EXPECT_EQ(values->at(2).scalar<float>(), 40.0f);
  EXPECT_EQ(metadata.step_id, 1000u + 39 * 64);
  // Steps whose numbers the session gives come between such rows.
  ASSERT_TRUE(session->RunCallable(step, std::span(feeds).first(1)).ok());
  values = session->RunCallable(step, std::span(feeds).first(2),
                                {.step = 100'000, .steps = 2, .step_stride = 7});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 10.0f + 40 * 41 / 2.0f + 1 + 3);
  ExpectError(session->RunCallable(step, std::span(feeds).first(3), {.steps = 2}).status(),
              Code::kInvalidArgument, {"3 tensors fed to a signature of 1", "or 2"});
  ExpectError(session->RunCallable(step, std::span(feeds).first(1), {.step = UINT64_MAX}).status(),
              Code::kInvalidArgument, {"numbers of steps end at"});
  feeds[1] = Tensor::Scalar<int32_t>(1);
  ExpectError(session->RunCallable(step, std::span(feeds).first(2), {.steps = 2}).status(),
              Code::kInvalidArgument, {"cannot feed int32"});
  ExpectError(session->RunCallable(step, std::span(feeds).first(1), {.steps = 2, .step_stride = 0})
                  .status(),
              Code::kInvalidArgument, {"step_stride is 0"});
}

TEST_F(SessionOnCluster, AFailureEndsTheRowOfStepsEverywhere) {
  Counter counter;
  const Output now =
      ReadVariable(counter.ps.WithControlDependencies({counter.more}), counter.handle);
  const Output there = Identity(counter.root.WithDevice(kWorker1), now);
  const Operation check = Assert(counter.root.WithDevice(kWorker1).WithOpName("limit"),
                                 LessEqual(counter.root.WithDevice(kWorker1), there,
                                           Const(counter.root.WithDevice(kWorker1), 50.0f)),
                                 {there});
  ASSERT_TRUE(counter.root.ok()) << counter.root.status();
  auto session = cluster_->Connect(counter.graph);
  ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
  auto run = session->Run({}, {}, {check}, {.steps = 200});
  ExpectError(run.status(), Code::kInvalidArgument, {"limit", "/job:worker/replica:0/task:1"});
  // The parameter server may have been ahead of the worker, by the rows that it knew of.
  const float reached = counter.Value(*session);
  EXPECT_GE(reached, 51.0f);
  EXPECT_LE(reached, 50.0f + 48.0f);
  for (int i = 0; i < 70; ++i) {  // the ring goes round
    auto more = session->Run({}, {counter.value}, {counter.more});
    ASSERT_TRUE(more.ok()) << more.status();
  }
  EXPECT_EQ(counter.Value(*session), reached + 70.0f);
}

TEST_F(SessionOnCluster, ARowWhoseTimeIsUpNamesTheTaskThatStillRuns) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongKernel slow(root, kWorker1);
  auto session = cluster_->Connect(graph);
  const auto run = session->Run({{slow.side, Tensor::Scalar<int32_t>(400)}}, {slow.sum}, {},
                                {.timeout = 300ms, .steps = 100'000});
  ExpectError(run.status(), Code::kDeadlineExceeded, {"/job:worker/replica:0/task:1", "0.3 s"});
  EXPECT_TRUE(session->Run({{slow.side, Tensor::Scalar<int32_t>(2)}}, {slow.sum}).ok());
}

TEST_F(SessionOnCluster, AGraphMayGrowBetweenRuns) {
  Counter counter;
  auto session = cluster_->Connect(counter.graph);
  ASSERT_TRUE(session->Run({}, {}, {counter.init}).ok());
  const Output doubled = Add(counter.root.WithDevice(kWorker1), counter.value, counter.value);
  auto values = session->Run({}, {doubled});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<float>(), 20.0f);
}

TEST_F(SessionOnCluster, EveryTaskTellsHowManyBytesItHasMoved) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root.WithDevice(kWorker0), DT_FLOAT, {-1});
  const Output y = Identity(root.WithDevice(kWorker1), Square(root.WithDevice(kWorker0), x));
  const std::unique_ptr<Session> session = cluster_->Connect(graph);
  const Tensor large = Tensor::FromValues<float>(Shape{25000}, std::vector<float>(25000, 0.5f));
  const auto tasks = [&] {
    std::map<std::string, TaskStatus> by_name;
    auto all = session->Tasks();
    EXPECT_TRUE(all.ok()) << all.status();
    for (const TaskStatus& task : all.value()) by_name[task.task] = task;
    return by_name;
  };
  auto before = tasks();
  ASSERT_TRUE(session->Run({{x, large}}, {y}).ok());
  auto after = tasks();
  ASSERT_EQ(after.size(), 4u);
  const std::string client = "/job:client/replica:0/task:0", first = "/job:worker/replica:0/task:0",
                    second = "/job:worker/replica:0/task:1", ps = "/job:ps/replica:0/task:0";
  const auto sent = [&](const std::string& task) {
    return after[task].bytes_sent - before[task].bytes_sent;
  };
  const auto received = [&](const std::string& task) {
    return after[task].bytes_received - before[task].bytes_received;
  };
  for (const std::string& task : {client, first, second}) {
    EXPECT_GE(sent(task), 100000u) << task;
    EXPECT_LT(sent(task), 110000u) << task;
    EXPECT_GE(received(task), 100000u) << task;
    EXPECT_LT(received(task), 110000u) << task;
    EXPECT_EQ(after[task].steps_done - before[task].steps_done, task == client ? 0u : 1u) << task;
  }
  EXPECT_EQ(sent(ps) + received(ps), 0u) << "the step has no part there";
  EXPECT_EQ(after[client].process_id, getpid());
  EXPECT_EQ(after[ps].address, cluster_->address("ps", 0));
  EXPECT_GT(after[first].uptime_seconds, 0);
  EXPECT_LT(after[first].uptime_seconds, 3600);
  EXPECT_GT(after[first].cpu_seconds, 0);
  EXPECT_GT(after[first].resident_bytes, 1 << 20);
  EXPECT_EQ(after[first].sessions, 1);
  EXPECT_EQ(after[first].graphs, 1);
}

}  // namespace
}  // namespace monograph
