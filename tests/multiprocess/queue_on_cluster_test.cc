// Queues of a daemon, where several clients meet.
#include <gtest/gtest.h>

#include <array>
#include <future>

#include "client/registries.h"
#include "graph/graph_file.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/queue/queue.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// One client's view of the queue "numbers" on the parameter server.
struct QueueClient {
  explicit QueueClient(DType dtype = DT_INT32) : graph(NewGraph()), root(&graph) {
    queue =
        FIFOQueue(root.WithDevice(kPs).WithOpName("q"), {dtype},
                  {.capacity = 4, .shapes = {PartialShape::Scalar()}, .shared_name = "numbers"});
    number = Placeholder(root, dtype, PartialShape::Scalar());
    put = QueueEnqueue(root, queue, {number});
    get = QueueDequeue(root.WithOpName("get"), queue)[0];
    close = QueueClose(root, queue);
    size = QueueSize(root.WithOpName("size"), queue);
  }
  Status Put(int value) {
    return session->Run({{number, Tensor::Scalar(value)}}, {}, {put}, {.timeout = 20s}).status();
  }
  Result<int> Get(std::chrono::milliseconds timeout = 20s) {
    MG_ASSIGN_OR_RETURN(auto values, session->Run({}, {get}, {}, {.timeout = timeout}));
    return values[0].scalar<int32_t>();
  }
  int Size() { return session->Run({}, {size}).value()[0].scalar<int32_t>(); }

  Graph graph;
  Scope root;
  Output queue, number, get, size;
  Operation put, close;
  std::unique_ptr<Session> session;
};

TEST(QueueOnCluster, ClientsMeetInAQueueByItsName) {
  TestCluster cluster({.workers = 0});
  QueueClient a, b;
  a.session = cluster.Connect(a.graph);
  b.session = cluster.Connect(b.graph);
  ASSERT_TRUE(a.Put(1).ok());
  EXPECT_EQ(b.Get().value(), 1);
  // Whoever waits in one session gets what another one brings.
  auto waiting = std::async(std::launch::async, [&] { return b.Get().value(); });
  ASSERT_TRUE(cluster.WaitForStatus("ps", 0,
                                    [](const auto& status) { return status.running_steps() > 0; }));
  ASSERT_TRUE(a.Put(2).ok());
  EXPECT_EQ(waiting.get(), 2);
  // It outlives the session that made it.
  ASSERT_TRUE(a.Put(3).ok());
  ASSERT_TRUE(a.session->Close().ok());
  EXPECT_EQ(b.Size(), 1);
  ASSERT_TRUE(b.session->Run({}, {}, {b.close}).ok());
  EXPECT_EQ(b.Get().value(), 3);
  ExpectError(b.Get().status(), Code::kOutOfRange,
              {"FIFOQueue 'numbers' is closed and has insufficient elements (requested 1, current "
               "size 0)",
               "'get' (QueueDequeueV2)", "/job:ps"});
}

TEST(QueueOnCluster, TwoClientsThatDefineOneQueueDifferentlyAreShownBoth) {
  TestCluster cluster({.workers = 0});
  QueueClient a, b(DT_FLOAT);
  a.session = cluster.Connect(a.graph);
  b.session = cluster.Connect(b.graph);
  EXPECT_EQ(a.Size(), 0);
  ExpectError(b.session->Run({}, {b.size}).status(), Code::kFailedPrecondition,
              {"component_types=[float]", "component_types=[int32]", "localhost/numbers", "'q'"});
}

TEST(QueueOnCluster, AWaitEndsWithItsDeadlineOrItsSessionAndTakesNothing) {
  TestCluster cluster({.workers = 0});
  QueueClient a, b;
  a.session = cluster.Connect(a.graph);
  b.session = cluster.Connect(b.graph);
  ExpectError(a.Get(100ms).status(), Code::kDeadlineExceeded, {"/job:ps"});
  auto waiting = std::async(std::launch::async, [&] { return a.Get().status(); });
  ASSERT_TRUE(cluster.WaitForStatus("ps", 0,
                                    [](const auto& status) { return status.running_steps() > 0; }));
  ASSERT_TRUE(a.session->Close().ok());
  EXPECT_EQ(waiting.get().code(), Code::kCancelled);
  ASSERT_TRUE(b.Put(5).ok());
  EXPECT_EQ(b.Size(), 1);
  EXPECT_EQ(b.Get().value(), 5);
}

TEST(QueueOnCluster, AStepThatRunsOutOfTimeSaysWhichTaskWaitsForWhat) {
  TestCluster cluster({.ps = 1, .workers = 3});
  QueueClient a;
  std::vector<Output> uses;
  for (int worker = 0; worker < 3; ++worker) {
    const Scope there = a.root.WithDevice("/job:worker/task:" + std::to_string(worker));
    uses.push_back(Neg(there.WithOpName("use"), a.get));
  }
  a.session = cluster.Connect(a.graph);
  const auto begin = Clock::now();
  const Status status = a.session->Run({}, uses, {}, {.timeout = 200ms}).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  // First the task that is to blame.
  std::string text =
      "step 1 did not end within 0.2 s; tasks still running: /job:ps/replica:0/task:0 (node 'get' "
      "(QueueDequeueV2): FIFOQueue 'numbers' has insufficient elements (requested 1, current size "
      "0))";
  for (const char* worker : {"0", "1", "2"}) {
    text += std::string(", /job:worker/replica:0/task:") + worker +
            " (awaits 'get:0' from /job:ps/replica:0/task:0/device:CPU:0)";
  }
  EXPECT_EQ(status.message(), text);
  EXPECT_LT(Clock::now() - begin, 3s);
  ASSERT_TRUE(a.Put(1).ok());
  EXPECT_TRUE(a.session->Run({}, uses, {}, {.timeout = 20s}).ok());
}

TEST(QueueOnCluster, AStepThatWaitsHoldsUpNoOther) {
  TestCluster cluster({.workers = 0});
  QueueClient a;
  a.session = cluster.Connect(a.graph);
  auto waiting = std::async(std::launch::async, [&] { return a.Get().value(); });
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(a.session->Run({}, {a.size}, {}, {.timeout = 20s}).ok()) << "step " << i;
  }
  ASSERT_TRUE(a.Put(2).ok());
  EXPECT_EQ(waiting.get(), 2);
}

TEST(QueueOnCluster, AKilledClientThatWaitedTakesNothing) {
  TestCluster cluster({.workers = 0});
  QueueClient b;
  TemporaryFolder folder;
  ASSERT_TRUE(WriteGraph(b.graph, folder.File("graph.pb")).ok());
  folder.Write("steps.json", R"({"steps": [{"fetches": ["get:0"]}]})");
  ChildProcess a({MonographPath(), "run", folder.File("graph.pb"),
                  "--script=" + folder.File("steps.json"), "--out=" + folder.File("out"),
                  "--cluster=" + cluster.json()});
  ASSERT_TRUE(cluster.WaitForStatus("ps", 0, [](const auto& status) {
    return status.running_steps() > 0;
  })) << a.error();
  a.Signal(SIGKILL);
  ASSERT_TRUE(
      cluster.WaitForStatus("ps", 0, [](const auto& status) { return status.sessions() == 0; }));
  b.session = cluster.Connect(b.graph);
  ASSERT_TRUE(b.Put(5).ok());
  EXPECT_EQ(b.Size(), 1);
  EXPECT_EQ(b.Get().value(), 5);
}

}  // namespace
}  // namespace monograph
