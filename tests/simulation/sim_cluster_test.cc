// A cluster on the simulated network, on real threads and by the real clock: what its sessions
// compute, and how they learn of losses. Under the scheduler: tests/simulation/*_scenario.cc.
#include "tests/simulation/sim_cluster.h"

#include <gtest/gtest.h>

#include "base/pool_allocator.h"
#include "base/thread.h"
#include "client/registries.h"
#include "client/session.h"
#include "ops/collective/collective.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/elementwise/elementwise.h"
#include "ops/variable/variable.h"
#include "tests/simulation/host.h"

namespace monograph {
namespace {

using simulation::Network;
using simulation::SimCluster;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A variable on ps-0, to which each of two workers adds 1 in a step.
struct Counting {
  Graph graph = NewGraph();
  Scope root{&graph};
  Operation first, add;
  Output count;

  Counting() {
    const Scope ps = root.WithDevice("/job:ps/task:0");
    const Output handle = VarHandle(ps.WithOpName("count"), DT_FLOAT, Shape{4});
    first = AssignVariable(ps, handle, Const(ps, Shape{4}, {0.0f, 0.0f, 0.0f, 0.0f}));
    const Output before = ReadVariable(ps, handle);
    std::vector<Output> parts;
    for (const char* worker : {"/job:worker/task:0", "/job:worker/task:1"}) {
      const Scope there = root.WithDevice(worker);
      const Output next = Add(there, before, Const(there, Shape{4}, {1.0f, 1.0f, 1.0f, 1.0f}));
      parts.push_back(Sub(there, next, before));
    }
    add = AssignAddVariable(ps, handle, Add(ps, parts[0], parts[1]));
    count = before;
  }
};

class SimulatedCluster : public testing::Test {
 protected:
  SimulatedCluster() : cluster_(&network_, {{"ps", 1}, {"worker", 2}}) {
    const Status started = cluster_.Start();
    EXPECT_TRUE(started.ok()) << started;
  }
  std::unique_ptr<Session> Connect() {
    auto session = Session::Connect(cluster_.spec(), counting_.graph,
                                    {.inter_op_parallelism_threads = 2,
                                     .intra_op_parallelism_threads = 1,
                                     .start_timeout = seconds(5)});
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? std::move(session).value() : nullptr;
  }
  static Status Run(Session& session, const Operation& target) {
    return session.Run({}, {}, {target}, {.timeout = seconds(20)}).status();
  }
  float Count(Session& session) {
    const auto values = session.Run({}, {counting_.count}, {}, {.timeout = seconds(20)});
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? values->at(0).data<float>()[0] : -1;
  }
  // Steps until one fails.
  Status StepsUntilAFailure(Session& session) {
    const auto deadline = simulation::Clock::now() + seconds(30);
    while (simulation::Clock::now() < deadline) {
      if (Status status = Run(session, counting_.add); !status.ok()) return status;
    }
    return Internal("no step has failed");
  }

  Counting counting_;
  Network network_{Network::Options{}};
  SimCluster cluster_;
};

TEST_F(SimulatedCluster, MakesSteps) {
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(Run(*session, counting_.first).ok());
  for (int i = 1; i <= 5; ++i) {
    const Status status = Run(*session, counting_.add);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(Count(*session), static_cast<float>(2 * i));
  }
  EXPECT_TRUE(session->Close().ok());
}

TEST_F(SimulatedCluster, NamesAMachineThatIsCutOffWithinThreeSecondsAndGoesOnAfterTheHeal) {
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Run(*session, counting_.first).ok());
  simulation::Clock::time_point cut;
  std::thread cutter([&] {
    std::this_thread::sleep_for(milliseconds(50));
    cut = simulation::Clock::now();
    network_.Isolate(cluster_.HostOf("worker-1"));
  });
  const Status failed = StepsUntilAFailure(*session);
  const auto took = simulation::Clock::now() - cut;
  cutter.join();
  EXPECT_EQ(failed.code(), Code::kUnavailable) << failed;
  EXPECT_EQ(failed.lost_task(), "/job:worker/replica:0/task:1") << failed;
  EXPECT_LT(took, seconds(3));
  (void)session->Close();
  network_.HealAll();
  const auto again = Connect();
  ASSERT_NE(again, nullptr);
  const float before = Count(*again);
  EXPECT_TRUE(Run(*again, counting_.add).ok());
  EXPECT_EQ(Count(*again), before + 2);
}

TEST_F(SimulatedCluster, NamesATaskThatIsKilledAtOnceAndMeetsTheNextOneInItsPlace) {
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Run(*session, counting_.first).ok());
  const auto start = simulation::Clock::now();
  cluster_.Kill("worker-0");
  const Status failed = StepsUntilAFailure(*session);
  EXPECT_EQ(failed.lost_task(), "/job:worker/replica:0/task:0") << failed;
  EXPECT_LT(simulation::Clock::now() - start, seconds(2));
  (void)session->Close();
  ASSERT_TRUE(cluster_.Restart("worker-0").ok());
  const auto again = Connect();
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(Run(*again, counting_.add).ok());
}

// The next client begins before the daemons know that the first one is lost, whose gradient is
// still on its way.
TEST_F(SimulatedCluster, OpensASessionOnlyWhenTheStepsOfAClientWhoseMachineIsGoneHaveEnded) {
  const int gone = network_.AddHost("gone");
  std::thread first([&] {
    const simulation::OnHost there(gone);
    const auto session = Connect();
    ASSERT_NE(session, nullptr);
    EXPECT_TRUE(Run(*session, counting_.first).ok());
    network_.SetLink(cluster_.HostOf("worker-0"), cluster_.HostOf("ps-0"),
                     {.delay = milliseconds(1400)});
    std::thread crash([&] {
      std::this_thread::sleep_for(milliseconds(100));
      network_.Crash(gone);
    });
    EXPECT_FALSE(Run(*session, counting_.add).ok());
    crash.join();
  });
  first.join();
  std::this_thread::sleep_for(milliseconds(700));
  const auto next = Connect();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(Run(*next, counting_.first).ok());
  std::this_thread::sleep_for(seconds(2));
  EXPECT_EQ(Count(*next), 0);
}

// The client gives the step up before anybody has noticed the cut: what a member sends cannot
// leave.
TEST_F(SimulatedCluster, ClosesASessionSoonThoughAPartOfASumCannotLeave) {
  Graph graph = NewGraph();
  const Scope root(&graph);
  CollectiveGroup group{.size = 2, .key = 1, .timeout_seconds = 60};
  for (const int task : {0, 1})
    group.members.push_back("/job:worker/replica:0/task:" + std::to_string(task) + "/device:CPU:0");
  std::vector<Output> sums;
  for (const std::string& device : group.members) {
    const Scope there = root.WithDevice(device);
    const Output value = Fill(there, Const(there, {1 << 20}), Const(there, 1.0f));
    sums.push_back(CollectiveReduce(there, value, group, 1));
  }
  const Operation target = Group(root, {sums[0], sums[1]});
  ASSERT_TRUE(root.ok()) << root.status();
  const auto session = Session::Connect(cluster_.spec(), graph, {.start_timeout = seconds(5)});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(Run(**session, target).ok());
  network_.Cut(cluster_.HostOf("worker-0"), cluster_.HostOf("worker-1"));
  const auto ran = (*session)->Run({}, {}, {target}, {.timeout = milliseconds(500)});
  EXPECT_EQ(ran.status().code(), Code::kDeadlineExceeded) << ran.status();
  const auto start = simulation::Clock::now();
  (void)(*session)->Close();
  EXPECT_LT(simulation::Clock::now() - start, seconds(5));
}

TEST_F(SimulatedCluster, AFetchThatComesWhenItsStepIsOverIsNotKept) {
  const int host = network_.AddHost("patient");
  std::thread client([&] {
    const simulation::OnHost there(host);
    Graph graph = NewGraph();
    const Scope root(&graph);
    const Scope ps = root.WithDevice("/job:ps/task:0");
    const Output value = Fill(ps, Const(ps, {1 << 20}), Const(ps, 1.0f));
    ASSERT_TRUE(root.ok()) << root.status();
    const auto session = Session::Connect(cluster_.spec(), graph, {.start_timeout = seconds(5)});
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE((*session)->Run({}, {value}).ok());
    const int64_t before = HostPool().bytes_in_use();
    network_.SetLink(cluster_.HostOf("ps-0"), host, {.delay = milliseconds(300)});
    const auto late = (*session)->Run({}, {value}, {}, {.timeout = milliseconds(100)});
    EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded) << late.status();
    std::this_thread::sleep_for(seconds(2));
    EXPECT_LT(HostPool().bytes_in_use(), before + (1 << 20));
  });
  client.join();
}

TEST_F(SimulatedCluster, NamesALinkThatIsCutBetweenTwoTasks) {
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(Run(*session, counting_.first).ok());
  network_.Cut(cluster_.HostOf("ps-0"), cluster_.HostOf("worker-1"));
  const auto start = simulation::Clock::now();
  const Status failed = StepsUntilAFailure(*session);
  EXPECT_EQ(failed.code(), Code::kUnavailable) << failed;
  EXPECT_FALSE(failed.lost_task().empty()) << failed;
  EXPECT_NE(failed.message().find("the client reaches both"), std::string::npos) << failed;
  EXPECT_LT(simulation::Clock::now() - start, milliseconds(3500));
}

TEST_F(SimulatedCluster, RefusesWhatAnEarlierSessionLeftBehind) {
  {
    const auto earlier = Connect();
    ASSERT_NE(earlier, nullptr);
    ASSERT_TRUE(Run(*earlier, counting_.first).ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Run(*earlier, counting_.add).ok());
  }
  const auto session = Connect();
  ASSERT_NE(session, nullptr);
  // Once a step has gone over them the connections are open: what comes by them again arrives.
  EXPECT_TRUE(Run(*session, counting_.add).ok());
  float expected = 8;
  for (int i = 0; i < 5; ++i) {
    int replayed = 0;
    for (const char* from : {"client", "worker-0", "worker-1"})
      replayed += network_.Replay(network_.HostNamed(from), cluster_.HostOf("ps-0"));
    EXPECT_GT(replayed, 0);
    EXPECT_TRUE(Run(*session, counting_.add).ok());
    EXPECT_EQ(Count(*session), expected += 2);
  }
  EXPECT_GT(cluster_.server("ps-0")->worker().stats().messages_dropped, 0u);
}

}  // namespace
}  // namespace monograph
