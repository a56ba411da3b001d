// Borrowed ops (executor/borrowed.h) in daemons: who opens TensorFlow's library, and what a client
// hears if it crashes. Needs a TensorFlow, as tests/client/borrowed_test.cc.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "client/registries.h"
#include "executor/borrowed.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

class BorrowedOnCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "AddressSanitizer refuses the way in which it is opened";
    const char* const python = std::getenv("MONOGRAPH_TENSORFLOW");
    if (python == nullptr || *python == '\0')
      GTEST_SKIP() << "MONOGRAPH_TENSORFLOW names no interpreter that has TensorFlow";
    ASSERT_TRUE(TensorFlowVersion().ok()) << TensorFlowVersion().status();
  }
};

bool HasOpenedTensorFlow(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/maps");
  std::stringstream maps;
  maps << file.rdbuf();
  EXPECT_NE(maps.str().find("libc.so"), std::string::npos);
  return maps.str().find("libtensorflow_cc.so") != std::string::npos;
}

TEST_F(BorrowedOnCluster, OnlyTheTaskThatComputesABorrowedOpOpensTheLibrary) {
  TestCluster cluster({.ps = 1, .workers = 1});
  const auto opened = [&cluster] {
    return std::vector<bool>{HasOpenedTensorFlow(getpid()),
                             HasOpenedTensorFlow(cluster.daemon("ps", 0).pid()),
                             HasOpenedTensorFlow(cluster.daemon("worker", 0).pid())};
  };
  Graph graph = NewGraph();
  const Scope root(&graph), worker = root.WithDevice(kWorker0), ps = root.WithDevice(kPs);
  const Output x = Const(ps, 1.0f), ours = Exp(worker, x);
  const Output borrowed = OpBuilder(worker, "Dawsn").Input(ours).BuildOutput();
  const Output sum = Add(ps, borrowed, x);
  const auto session = cluster.Connect(graph);
  const auto plain = session->Run({}, {ours});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(opened(), (std::vector<bool>{false, false, false}));
  const auto fetched = session->Run({}, {sum});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_NEAR((*fetched)[0].scalar<float>(), 1.20069f, 1e-4f);
  EXPECT_EQ(opened(), (std::vector<bool>{false, false, true}));
}

// TensorFlow's op Abort ends its process, as a check that fails in a kernel does.
TEST_F(BorrowedOnCluster, ACrashNamesTheOpAndTheTask) {
  TestCluster cluster({.ps = 0, .workers = 2});
  Graph graph = NewGraph();
  const Scope root(&graph), worker = root.WithDevice(kWorker1);
  const Operation crash = OpBuilder(worker.WithOpName("boom"), "Abort").Build();
  const Output other = Exp(root.WithDevice(kWorker0), Const(root.WithDevice(kWorker0), 0.0f));
  const auto session = cluster.Connect(graph);
  const auto step = session->MakeCallable({}, {other}, {crash});  // the library is open
  ASSERT_TRUE(step.ok()) << step.status();
  const auto start = Clock::now();
  const Status status = session->RunCallable(*step, {}).status();
  EXPECT_LT(Clock::now() - start, 3s);
  ExpectError(status, Code::kUnavailable,
              {"/job:worker/replica:0/task:1 crashes", "node 'boom' (Abort)"});
  ChildProcess& daemon = cluster.daemon("worker", 1);
  const std::optional<Exit> exit = daemon.Wait(10s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_TRUE(exit->signalled);
  EXPECT_EQ(exit->code, SIGABRT);
  EXPECT_NE(daemon.error().find("computes node 'boom' (Abort)"), std::string::npos)
      << daemon.error();
  // The other task goes on.
  const auto fetched = session->Run({}, {other});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ((*fetched)[0].scalar<float>(), 1);
}

}  // namespace
}  // namespace monograph
