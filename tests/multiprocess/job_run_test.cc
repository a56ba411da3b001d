// A run of a job, as its clients see it: the chief comes and goes, others come early, late, or
// again.
#include "ops/job_run/job_run.h"

#include "client/registries.h"
#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// One client. Closing it is what the daemon sees of a client that ends or is killed.
struct Client {
  explicit Client(TestCluster& cluster) {
    const Scope home = Scope(&graph).WithDevice("/job:ps/task:0");
    const Output run = JobRun(home, "run");
    begin = JobRunBegin(home, run);
    ready = JobRunReady(home, run);
    finish = JobRunFinish(home, run);
    for (int rank = 0; rank < 4; ++rank) {
      join.push_back(JobRunJoin(home, run, rank, false));
      rejoin.push_back(JobRunJoin(home, run, rank, true));
    }
    session = cluster.Connect(graph);
  }
  void Run(const Operation& operation) {
    const Status status = session->Run({}, {}, {operation}).status();
    EXPECT_TRUE(status.ok()) << status;
  }
  JobRunJoined Join(int rank, bool again = false) {
    const auto joined = session->Run({}, {(again ? rejoin : join)[static_cast<size_t>(rank)]});
    EXPECT_TRUE(joined.ok()) << joined.status();
    return static_cast<JobRunJoined>(joined.value()[0].scalar<int32_t>());
  }
  void Close() { EXPECT_TRUE(session->Close().ok()); }

  Graph graph = NewGraph();
  Operation begin, ready, finish;
  Outputs join, rejoin;
  std::unique_ptr<Session> session;
};

TEST(JobRun, OthersJoinOnceTheChiefIsReadyAndWhileItIsThere) {
  TestCluster cluster({.ps = 1, .workers = 0});
  Client other(cluster), chief(cluster);
  EXPECT_EQ(other.Join(1), JobRunJoined::kNotReady);
  EXPECT_EQ(other.Join(1, true), JobRunJoined::kNotReady);
  chief.Run(chief.begin);
  EXPECT_EQ(other.Join(1), JobRunJoined::kNotReady);
  chief.Run(chief.ready);
  EXPECT_EQ(other.Join(1), JobRunJoined::kJoined);
  EXPECT_EQ(other.Join(1), JobRunJoined::kRejoined) << "it may come back while the chief is there";
  EXPECT_EQ(other.Join(2), JobRunJoined::kJoined);
}

TEST(JobRun, WhatAChiefThatIsGoneLeftIsForThoseWhoSayThatTheyComeBack) {
  TestCluster cluster({.ps = 1, .workers = 0});
  Client other(cluster);
  {
    Client chief(cluster);
    chief.Run(chief.begin);
    chief.Run(chief.ready);
    EXPECT_EQ(other.Join(1), JobRunJoined::kJoined);
    chief.Close();
  }
  EXPECT_EQ(other.Join(1), JobRunJoined::kLeftOver);
  EXPECT_EQ(other.Join(2), JobRunJoined::kLeftOver);
  EXPECT_EQ(other.Join(1, true), JobRunJoined::kRejoined);
  // A chief that comes back is there again.
  Client again(cluster);
  again.Run(again.ready);
  EXPECT_EQ(other.Join(2), JobRunJoined::kJoined);
  // One that starts makes all wait.
  Client fresh(cluster);
  fresh.Run(fresh.begin);
  EXPECT_EQ(other.Join(1, true), JobRunJoined::kNotReady);
  again.Close();
  fresh.Run(fresh.ready);
  EXPECT_EQ(other.Join(1), JobRunJoined::kJoined);
}

TEST(JobRun, WhoComesLateToARunThatHasFinishedMaySeeThatItHas) {
  TestCluster cluster({.ps = 1, .workers = 0});
  Client other(cluster);
  {
    Client chief(cluster);
    chief.Run(chief.begin);
    chief.Run(chief.ready);
    EXPECT_EQ(other.Join(1), JobRunJoined::kJoined);
    chief.Run(chief.finish);
    chief.Close();
  }
  EXPECT_EQ(other.Join(2), JobRunJoined::kJoined);
  EXPECT_EQ(other.Join(2), JobRunJoined::kLeftOver) << "it is of the next run";
  EXPECT_EQ(other.Join(1), JobRunJoined::kLeftOver);
}

}  // namespace
}  // namespace monograph
