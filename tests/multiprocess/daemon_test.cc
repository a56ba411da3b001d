// A daemon's own life: draining, idling.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>

#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

long RssKiB(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stol(line.substr(6));
  }
  return -1;
}

TEST(Daemon, SigtermLetsARunningStepEndAndThenEndsTheDaemonWithZero) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--drain_seconds=60"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const LongKernel kernel(root, "/job:worker/task:0");
  auto session = cluster.Connect(graph);
  constexpr int kSide = kSanitized ? 600 : 1200;  // some tenths of a second
  std::future<Result<std::vector<Tensor>>> step = std::async(std::launch::async, [&] {
    return session->Run({{kernel.side, Tensor::Scalar<int32_t>(kSide)}}, {kernel.sum});
  });
  ASSERT_TRUE(cluster.WaitForStatus("worker", 0,
                                    [](const auto& status) { return status.running_steps() > 0; }));
  cluster.daemon("worker", 0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.daemon("worker", 0).WaitForError("draining"));
  auto values = step.get();
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->at(0).scalar<int64_t>(), int64_t{kSide} * kSide * kSide);
  const std::optional<Exit> exit = cluster.daemon("worker", 0).Wait(15s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_FALSE(exit->signalled);
  EXPECT_EQ(exit->code, 0);
  // The session learns that the task went.
  ExpectError(session->Run({{kernel.side, Tensor::Scalar<int32_t>(2)}}, {kernel.sum}).status(),
              Code::kUnavailable, {"/job:worker/replica:0/task:0"});
}

TEST(Daemon, AStepThatOutlastsTheDrainIsEndedWithTheTasksName) {
  TestCluster cluster({.ps = 0, .workers = 1, .flags = {"--drain_seconds=0.2"}});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {1 << 20});
  Output y = x;
  for (int i = 0; i < 20000; ++i) y = Neg(root.WithDevice("/job:worker/task:0"), y);
  auto session = cluster.Connect(graph);
  const Tensor value = Tensor::Allocate(DT_FLOAT, Shape{1 << 20}).value();
  std::future<Status> step = std::async(std::launch::async, [&] {
    return session->Run({{x, value}}, {}, {Operation(y)}).status();
  });
  ASSERT_TRUE(cluster.WaitForStatus("worker", 0,
                                    [](const auto& status) { return status.running_steps() > 0; }));
  cluster.daemon("worker", 0).Signal(SIGTERM);
  const std::optional<Exit> exit = cluster.daemon("worker", 0).Wait(15s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
  const Status status = step.get();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/job:worker/replica:0/task:0"), std::string::npos) << status;
}

TEST(Daemon, AnIdleDaemonWithAnOpenSessionUsesAtMostOnePercentOfACoreAnd64MiB) {
  if (kSanitized) GTEST_SKIP() << "sanitizers use time and memory of their own";
  TestCluster cluster({.ps = 1, .workers = 1});
  Graph graph = NewGraph();
  Scope root(&graph);
  const Output x = Placeholder(root, DT_FLOAT, {});
  const Output y =
      Neg(root.WithDevice("/job:worker/task:0"), Neg(root.WithDevice("/job:ps/task:0"), x));
  auto session = cluster.Connect(graph);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(session->Run({{x, Tensor::Scalar(1.0f)}}, {y}).ok());
  const pid_t pid = cluster.daemon("worker", 0).pid();
  // In one of some seconds: on a busy machine what is left to do takes longer.
  auto least = std::chrono::milliseconds::max();
  for (int i = 0; i < 5 && least > 10ms; ++i) {
    const auto before = CpuTimeOf(pid);
    // This is the measurement itself, not a synchronisation.
    std::this_thread::sleep_for(1s);
    least = std::min(least, CpuTimeOf(pid) - before);
  }
  EXPECT_LE(least, 10ms);
  EXPECT_LE(RssKiB(pid), 64 * 1024);
}

TEST(Daemon, HelpBeginsWithExamplesAndTheVersionIsToldOnStandardOutput) {
  ChildProcess help({ExecutorPath(), "--help"});
  EXPECT_EQ(help.Wait(20s)->code, 0);
  const std::string text = help.output();
  ASSERT_NE(text.find("Examples:"), std::string::npos) << text;
  EXPECT_LT(text.find("Examples:"), text.find("--drain_seconds")) << text;
  for (const char* flag : {"--cluster", "--job", "--task", "--key_file", "--lanes"})
    EXPECT_NE(text.find(flag), std::string::npos) << flag;
  ChildProcess version({ExecutorPath(), "--version"});
  EXPECT_EQ(version.Wait(20s)->code, 0);
  EXPECT_FALSE(version.output().empty());
}

}  // namespace
}  // namespace monograph
