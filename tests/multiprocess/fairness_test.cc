// Long kernels: other sessions go on beside them, an ended session's end soon, and a daemon that is
// told to stop meanwhile ends well.
#include <signal.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduce/reduce.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// A product of float matrices with a fed side, by oneDNN.
struct LongProduct {
  explicit LongProduct(const Scope& root) {
    side = Placeholder(root.WithOpName("side"), DT_INT32, {});
    const Scope there = root.WithDevice(kWorker0);
    const Output square = Fill(there, Pack(there, {side, side}), Const(there, 1.0f));
    sum = Sum(there, MatMul(there.WithOpName("long_product"), square, square), {0, 1});
  }
  Output side, sum;
};

std::future<Status> RunLong(Session& session, const LongProduct& product, int32_t side) {
  return std::async(std::launch::async, [&session, &product, side] {
    return session.Run({{product.side, Tensor::Scalar(side)}}, {product.sum}).status();
  });
}

bool WaitForRunning(TestCluster& cluster, int steps) {
  return cluster.WaitForStatus(
      "worker", 0, [steps](const auto& status) { return status.running_steps() == steps; });
}

// Small steps with kernels that are worth a thread of their own.
struct SmallSteps {
  explicit SmallSteps(const Scope& root, const std::string& device = kWorker0) {
    x = Placeholder(root, DT_FLOAT, {96, 96});
    y = x;
    for (int i = 0; i < 4; ++i) y = MatMul(root.WithDevice(device), y, x);
  }
  Output x, y;
};

// The slowest of 20 steps of each session, all sessions at once.
Clock::duration SlowestStep(const std::vector<std::unique_ptr<Session>>& sessions,
                            const SmallSteps& small) {
  const Tensor value = Tensor::Allocate(DT_FLOAT, Shape{96, 96}).value();
  std::fill_n(const_cast<float*>(value.data<float>()), 96 * 96, 0.01f);
  std::vector<std::future<Clock::duration>> slowest;
  for (const auto& session : sessions) {
    slowest.push_back(std::async(std::launch::async, [&] {
      Clock::duration worst{};
      for (int i = 0; i < 20; ++i) {
        const auto begin = Clock::now();
        const Status status = session->Run({{small.x, value}}, {small.y}).status();
        EXPECT_TRUE(status.ok()) << status;
        worst = std::max(worst, Clock::now() - begin);
      }
      return worst;
    }));
  }
  Clock::duration worst{};
  for (auto& one : slowest) worst = std::max(worst, one.get());
  return worst;
}

// A second task has no products, and the same cores: its steps say how long these take at that
// moment, when other programs run, too.
TEST(Fairness, SixClientsGoOnBesideHugeProducts) {
  TestCluster cluster({.ps = 0, .workers = 2});
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongProduct product(root);
  const SmallSteps small(root), elsewhere(root, kWorker1);
  // More kernels than there are threads.
  std::vector<Output> sums = {product.sum};
  const Scope there = root.WithDevice(kWorker0);
  for (int i = 0; i < 3; ++i) {
    const Output square =
        Fill(there, Pack(there, {product.side, product.side}), Const(there, static_cast<float>(i)));
    sums.push_back(Sum(there, MatMul(there, square, square), {0, 1}));
  }
  auto busy = cluster.Connect(graph);
  std::future<Status> step = std::async(std::launch::async, [&] {
    return busy->Run({{product.side, Tensor::Scalar<int32_t>(7000)}}, sums).status();
  });
  ASSERT_TRUE(WaitForRunning(cluster, 1));
  std::vector<std::unique_ptr<Session>> others;
  for (int i = 0; i < 6; ++i) others.push_back(cluster.Connect(graph));
  (void)SlowestStep(others, elsewhere);  // prepares them
  ExpectWithin(kSanitized ? 1s : 50ms, [&](Clock::duration* took) {
    const Clock::duration usual = SlowestStep(others, elsewhere);
    *took = SlowestStep(others, small);
    if (*took < 3 * usual) *took = {};
    // It ran all the time; else this would say nothing.
    EXPECT_NE(step.wait_for(0s), std::future_status::ready);
  });
  (void)busy->Close();
  EXPECT_FALSE(step.get().ok());
}

TEST(Fairness, OneClientGoesOnBesideTwentyWithLongKernels) {
  for (const char* threads : {"1", "2"}) {
    TestCluster cluster({.ps = 0,
                         .workers = 1,
                         .flags = {"--inter_op_parallelism_threads=" + std::string(threads),
                                   "--intra_op_parallelism_threads=" + std::string(threads)}});
    Graph graph = NewGraph();
    Scope root(&graph);
    const LongProduct product(root);
    const SmallSteps small(root);
    std::vector<std::unique_ptr<Session>> greedy;
    std::vector<std::future<Status>> steps;
    for (int i = 0; i < 20; ++i) {
      greedy.push_back(cluster.Connect(graph));
      steps.push_back(RunLong(*greedy.back(), product, 4000));
    }
    ASSERT_TRUE(WaitForRunning(cluster, 20));
    auto session = cluster.Connect(graph);
    const Tensor value = Tensor::Allocate(DT_FLOAT, Shape{96, 96}).value();
    std::fill_n(const_cast<float*>(value.data<float>()), 96 * 96, 0.01f);
    // The system shares the cores among as many threads: a step takes longer, but does not wait
    // for a kernel to end.
    ExpectWithin(kSanitized ? 5s : 1s, [&](Clock::duration* took) {
      for (int i = 0; i < 10; ++i) {
        const auto begin = Clock::now();
        const Status status = session->Run({{small.x, value}}, {small.y}).status();
        EXPECT_TRUE(status.ok()) << status;
        *took = std::max(*took, Clock::now() - begin);
      }
    });
    for (auto& other : greedy) (void)other->Close();
    for (auto& step : steps) (void)step.get();
  }
}

// Closes a session while its step is inside a long kernel. On a machine of its own a kernel ends
// within 100 ms; here other tests may run, too.
void ExpectKernelEndsSoon(const Graph& graph, const Output& side, const Output& sum) {
  TestCluster cluster({.ps = 0, .workers = 1});
  ExpectWithin(kSanitized ? 2s : 300ms, [&](Clock::duration* took) {
    auto session = cluster.Connect(graph);
    std::future<Status> step = std::async(std::launch::async, [&] {
      return session->Run({{side, Tensor::Scalar<int32_t>(6000)}}, {sum}).status();
    });
    EXPECT_TRUE(WaitForRunning(cluster, 1));
    std::this_thread::sleep_for(300ms);  // into the product
    const auto begin = Clock::now();
    const Status closed = session->Close();
    *took = Clock::now() - begin;
    EXPECT_TRUE(closed.ok()) << closed;
    EXPECT_EQ(step.get().code(), Code::kCancelled);
    EXPECT_TRUE(WaitForRunning(cluster, 0));
  });
}

TEST(Fairness, AProductOfOneDnnEndsSoonAfterItsSession) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongProduct product(root);
  ExpectKernelEndsSoon(graph, product.side, product.sum);
}

TEST(Fairness, AProductOfOurOwnEndsSoonAfterItsSession) {
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongKernel integers(root, kWorker0);
  ExpectKernelEndsSoon(graph, integers.side, integers.sum);
}

TEST(Fairness, ATimeoutEndsALongKernel) {
  TestCluster cluster({.ps = 0, .workers = 1});
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongProduct product(root);
  auto session = cluster.Connect(graph, {.operation_timeout = 300ms});
  ExpectWithin(kSanitized ? 3s : 500ms, [&](Clock::duration* took) {
    const auto begin = Clock::now();
    ExpectError(RunLong(*session, product, 6000).get(), Code::kDeadlineExceeded,
                {"did not end within 0.3 s", "node 'long_product' (MatMul)"});
    *took = Clock::now() - begin;
  });
}

// A convolution of one image by oneDNN, a single call of some seconds.
struct OneCall {
  explicit OneCall(const Scope& scope) {
    side = Placeholder(scope.WithOpName("side"), DT_INT32, {});
    const Output image = Fill(scope, Pack(scope, {Const(scope, 1), side, side, Const(scope, 32)}),
                              Const(scope, 1.f));
    const Output filter = Fill(scope, Const(scope, {21, 21, 32, 64}), Const(scope, 0.1f));
    sum = Sum(scope.WithOpName("sum_of_call"),
              Conv2D(scope.WithOpName("one_call"), image, filter, {1, 1, 1, 1}, "SAME"),
              {0, 1, 2, 3});
    small = Neg(scope, Const(scope, 1.f));
  }
  Output side, sum, small;
};

TEST(Fairness, ATimeoutHoldsInALocalSessionForACallThatCannotBeCut) {
  Graph graph = NewGraph();
  const OneCall call{Scope(&graph)};
  Result<std::unique_ptr<Session>> session = Session::Local(graph, {.operation_timeout = 1500ms});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto run = [&](int32_t side) {
    return (*session)->Run({{call.side, Tensor::Scalar(side)}}, {call.sum}).status();
  };
  auto begin = Clock::now();
  const Status late = run(1000);
  const auto took = Clock::now() - begin;
  ExpectError(
      late, Code::kDeadlineExceeded,
      {"did not end within 1.5 s", "has not stopped: it is inside node 'one_call' (Conv2D)"});
  EXPECT_LT(took, 3500ms);
  // The session goes on beside the kernel, and closes without it.
  EXPECT_TRUE((*session)->Run({}, {call.small}).ok());
  begin = Clock::now();
  (void)(*session)->Close();
  EXPECT_LT(Clock::now() - begin, 3s);
}

// What a daemon says of a step that is inside OneCall's convolution.
constexpr char kInsideOneCall[] = " (it waits for node 'one_call' (Conv2D), which computes)";

// Returns once the daemon has computed so long that it is inside OneCall's convolution, which
// takes most of a step of seconds.
void WaitUntilInside(const ChildProcess& daemon) {
  const auto before = CpuTimeOf(daemon.pid());
  for (const auto until = Clock::now() + 60s; Clock::now() < until;) {
    if (CpuTimeOf(daemon.pid()) - before > 1s) return;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "it computes nothing: " << daemon.error();
}

// The end of a session waits two seconds for its kernel (Worker::kCloseDeadline): nobody else does.
TEST(Fairness, AfterAClientIsKilledInACallThatCannotBeCutOthersGoOnAndANewSessionOpensAtOnce) {
  Graph graph = NewGraph();
  const Scope root(&graph);
  const OneCall call(root.WithDevice(kWorker0));
  const SmallSteps small(root);
  ASSERT_TRUE(root.ok()) << root.status();
  TemporaryFolder folder;
  ASSERT_TRUE(WriteGraph(graph, folder.File("graph.pb")).ok());
  std::string npy = std::string("\x93NUMPY\x01\0", 8);
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (), }";
  header += std::string(118 - header.size() - 1, ' ') + "\n";
  npy += std::string({static_cast<char>(header.size()), '\0'}) + header;
  npy += std::string("\xe8\x03\0\0", 4);  // 1000
  folder.Write("side.npy", npy);
  folder.Write("steps.json",
               R"({"steps": [{"feeds": {"side:0": "side.npy"}, "fetches": ["sum_of_call:0"]}]})");
  ExpectWithin(kSanitized ? 3s : 1s, [&](Clock::duration* took) {
    // The call takes the daemon's only thread for nodes.
    TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--inter_op_parallelism_threads=1"}});
    std::vector<std::unique_ptr<Session>> sessions;
    sessions.push_back(cluster.Connect(graph));
    (void)SlowestStep(sessions, small);  // prepares it
    ChildProcess client({MonographPath(), "run", folder.File("graph.pb"),
                         "--script=" + folder.File("steps.json"), "--out=" + folder.File("out"),
                         "--cluster=" + cluster.json()});
    ASSERT_TRUE(WaitForRunning(cluster, 1)) << client.error();
    const ChildProcess& daemon = cluster.daemon("worker", 0);
    WaitUntilInside(daemon);
    client.Signal(SIGKILL);
    const auto killed = Clock::now();
    sessions.push_back(cluster.Connect(graph));
    *took = Clock::now() - killed;
    const std::string left = "it is left to end without its session";
    while (daemon.error().find(left) == std::string::npos && Clock::now() - killed < 20s)
      *took = std::max(*took, SlowestStep(sessions, small));
    const std::string said = daemon.error();
    EXPECT_NE(said.find(left), std::string::npos) << said;
    EXPECT_NE(said.find(kInsideOneCall + ("; " + left)), std::string::npos) << said;
  });
}

TEST(Fairness, SigtermInACallThatCannotBeCutEndsTheDaemonWithZeroAndSaysWhatItLeft) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--drain_seconds=0.5"}});
  Graph graph = NewGraph();
  const OneCall call(Scope(&graph).WithDevice(kWorker0));
  auto session = cluster.Connect(graph);
  std::future<Status> step = std::async(std::launch::async, [&] {
    return session->Run({{call.side, Tensor::Scalar<int32_t>(1000)}}, {call.sum}).status();
  });
  ASSERT_TRUE(WaitForRunning(cluster, 1));
  ChildProcess& daemon = cluster.daemon("worker", 0);
  WaitUntilInside(daemon);
  const auto told = Clock::now();
  daemon.Signal(SIGTERM);
  const std::optional<Exit> exit = daemon.Wait(30s);
  ASSERT_TRUE(exit.has_value()) << daemon.error();
  // The drain, the two seconds that a session waits for its kernel, and those of a loaded machine.
  EXPECT_LT(Clock::now() - told, 500ms + 2s + 3s);
  EXPECT_FALSE(exit->signalled) << "signal " << exit->code << "\n" << daemon.error();
  EXPECT_EQ(exit->code, 0) << daemon.error();
  EXPECT_FALSE(step.get().ok());
  const std::string ends =
      "/job:worker/replica:0/task:0 ends steps that did not end within 0.5 s of draining: session ";
  const std::string said = daemon.error();
  EXPECT_NE(said.find(ends), std::string::npos) << said;
  EXPECT_NE(said.find(kInsideOneCall + std::string("\n"), said.find(ends)), std::string::npos)
      << said;
  EXPECT_NE(said.find(kInsideOneCall + std::string("; it is left to end without its session")),
            std::string::npos)
      << said;
}

// At any moment of a step: while it is registered, begins, computes, ends.
TEST(Fairness, TwentyTimesSigtermDuringHeavyStepsEndsTheDaemonWithZero) {
  std::mt19937 random(20261123);
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongProduct product(root);
  const LongKernel integers(root, kWorker0);
  for (int i = 0; i < 20; ++i) {
    TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--drain_seconds=0.05"}});
    auto session = cluster.Connect(graph);
    std::vector<std::future<Status>> steps;
    for (const auto& [a, b] :
         {std::pair(product.side, product.sum), std::pair(integers.side, integers.sum)}) {
      steps.push_back(std::async(std::launch::async, [&session, side = a, sum = b] {
        return session->Run({{side, Tensor::Scalar<int32_t>(4000)}}, {sum}).status();
      }));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    ChildProcess& daemon = cluster.daemon("worker", 0);
    daemon.Signal(SIGTERM);
    const std::optional<Exit> exit = daemon.Wait(15s);
    ASSERT_TRUE(exit.has_value()) << daemon.error();
    EXPECT_FALSE(exit->signalled) << "signal " << exit->code << "\n" << daemon.error();
    EXPECT_EQ(exit->code, 0) << daemon.error();
    for (auto& step : steps) EXPECT_FALSE(step.get().ok());
  }
}

}  // namespace
}  // namespace monograph
