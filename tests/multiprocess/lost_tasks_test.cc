// What the loss of a task means to a job, in every way of replication: the table in
// docs/replication.md, row by row.
#include <signal.h>

#include <algorithm>

#include "tests/multiprocess/mnist_jobs.h"

namespace monograph {
namespace {

constexpr char kLostPs[] = "/job:ps/replica:0/task:",
               kLostWorker[] = "/job:worker/replica:0/task:1";
// Far beyond kLimit: whoever ends in time did not end because of it.
constexpr char kPatient[] = "--worker_timeout=600";

const JobMode kInGraph{"in_graph", {"--replication=in_graph"}, 2, 1, "step "};
const JobMode kInGraphAsync{"in_graph async", {"--replication=in_graph", "--async"}, 2, 1};
const JobMode kInGraphReplicated{"in_graph replicated",
                                 {"--replication=in_graph", "--variable_update=replicated"},
                                 0,
                                 1,
                                 "step "};
const JobMode kInGraphCentral{
    "in_graph central", {"--replication=in_graph", "--variable_update=central"}, 0, 1, "step "};
const JobMode kAsync{"between_graph async", {}, 2, 2};
const JobMode kSync{"between_graph sync", {"--sync"}, 2, 2};
const JobMode kBackup{"between_graph sync, backup", {"--sync", "--replicas_to_aggregate=1"}, 2, 2};
const JobMode kReplicated{"between_graph replicated", {"--variable_update=replicated"}, 0, 2};
const JobMode kHybrid{"hybrid", {"--replication=hybrid", "--replicas_per_worker=2"}, 2, 2};

TEST(LostTasks, ALostParameterServerIsOneClearErrorAtEveryClientOfEveryMode) {
  int lost = 0;
  for (const JobMode& mode : {kInGraph, kInGraphAsync, kAsync, kSync, kBackup, kHybrid}) {
    Job job(mode, {kPatient});
    ASSERT_TRUE(job.Trains()) << job.Said();
    // In turn the one that counts the steps, and one that holds variables only.
    lost = 1 - lost;
    job.cluster.daemon("ps", lost).Signal(SIGKILL);
    for (const auto& client : job.clients) {
      SCOPED_TRACE(job.Said());
      ExpectFails(*client, {"UNAVAILABLE", kLostPs + std::to_string(lost)});
    }
  }
}

TEST(LostTasks, InOneGraphInStepALostWorkerFailsTheJobWithItsName) {
  for (const JobMode& mode : {kInGraph, kInGraphReplicated, kInGraphCentral}) {
    Job job(mode, {kPatient});
    ASSERT_TRUE(job.Trains()) << job.Said();
    job.cluster.daemon("worker", 1).Signal(SIGKILL);
    ExpectFails(job.client(0), {"UNAVAILABLE", kLostWorker});
  }
}

TEST(LostTasks, WorkersOfTheirOwnPaceGoOnWithoutALostOne) {
  for (const JobMode& mode : {kInGraphAsync, kAsync, kBackup, kHybrid}) {
    Job job(mode, {kPatient});
    ASSERT_TRUE(job.Trains()) << job.Said();
    job.cluster.daemon("worker", 1).Signal(SIGKILL);
    if (mode.clients == 2) {
      ExpectFails(job.client(1), {"UNAVAILABLE", kLostWorker});
    } else {
      EXPECT_TRUE(job.client(0).WaitForError("Going on without replica 1", kLimit)) << job.Said();
    }
    EXPECT_TRUE(job.GoesOn(0)) << job.Said();
    // It comes back, and trains.
    job.cluster.Start("worker", 1);
    if (mode.clients == 2) {
      job.StartClient(1);
      EXPECT_TRUE(job.client(1).WaitForError("Going on at global step ", kLimit)) << job.Said();
    } else {
      EXPECT_TRUE(job.client(0).WaitForError("Going on with replica 1", kLimit)) << job.Said();
    }
    EXPECT_TRUE(job.cluster.WaitForStatus(
        "worker", 1, [](const auto& status) { return status.steps_done() > 10; }, kLimit))
        << job.Said();
    EXPECT_TRUE(job.GoesOn(0)) << job.Said();
  }
}

TEST(LostTasks, InOneGraphTheLastOfTheWorkersOfTheirOwnPaceEndsTheJobWithItsName) {
  Job job(kInGraphAsync);
  ASSERT_TRUE(job.Trains()) << job.Said();
  job.cluster.daemon("worker", 0).Signal(SIGKILL);
  EXPECT_TRUE(job.client(0).WaitForError("Going on without replica 0", kLimit)) << job.Said();
  EXPECT_TRUE(job.GoesOn(0)) << job.Said();
  job.cluster.daemon("worker", 1).Signal(SIGKILL);
  ExpectFails(job.client(0), {"UNAVAILABLE", kLostWorker});
}

TEST(LostTasks, WorkersOfTheirOwnPaceGoOnWithoutALostClient) {
  for (const JobMode& mode : {kAsync, kBackup, kHybrid}) {
    Job job(mode, {kPatient});
    ASSERT_TRUE(job.Trains()) << job.Said();
    job.client(1).Signal(SIGKILL);
    ASSERT_TRUE(job.client(1).Wait(kLimit));
    EXPECT_TRUE(job.GoesOn(0)) << job.Said();
    // It comes back; the chief is there.
    job.StartClient(1);
    EXPECT_TRUE(job.client(1).WaitForError("Going on at global step ", kLimit)) << job.Said();
  }
}

TEST(LostTasks, InStepALostWorkerFailsTheOthersWithItsName) {
  Job sync(kSync, {kPatient}), replicated(kReplicated, {kPatient});
  ASSERT_TRUE(sync.Trains()) << sync.Said();
  ASSERT_TRUE(replicated.Trains()) << replicated.Said();
  for (Job* job : {&sync, &replicated}) {
    job->cluster.daemon("worker", 1).Signal(SIGKILL);
    ExpectFails(job->client(1), {"UNAVAILABLE", kLostWorker});
  }
  ExpectFails(replicated.client(0), {"UNAVAILABLE", kLostWorker});
  ExpectFails(sync.client(0), {"UNAVAILABLE", "replica 1 (/job:worker/task:1)"});
}

TEST(LostTasks, InStepALostClientFailsTheOthersWithItsWorkersName) {
  Job sync(kSync, {kPatient}), replicated(kReplicated, {kPatient}),
      without_chief(kReplicated, {kPatient});
  for (const Job* job : {&sync, &replicated, &without_chief})
    ASSERT_TRUE(job->client(0).WaitForOutput(job->mode.progress, kLimit)) << job->Said();
  const auto killed = Clock::now();
  for (Job* job : {&sync, &replicated}) job->client(1).Signal(SIGKILL);
  ExpectFails(sync.client(0), {"UNAVAILABLE", "replica 1 (/job:worker/task:1)"});
  EXPECT_LT(Clock::now() - killed, 3s);
  without_chief.client(0).Signal(SIGKILL);
  ExpectFails(without_chief.client(1),
              {"UNAVAILABLE", "the client of /job:worker/replica:0/task:0"});
  ExpectFails(replicated.client(0), {"UNAVAILABLE", "the client of /job:worker/replica:0/task:1"});
}

// Ways whose replicas keep in step: none can go on without worker 1 or its client.
class DeadReplica : public ::testing::TestWithParam<JobMode> {};

TEST_P(DeadReplica, IsNamedToEveryClientWithinThreeSeconds) {
  // Until the processes have ended, beside whatever else this machine does.
  constexpr auto kMost = 3s + 1s;
  for (const auto& [client, signal] : {std::pair(false, SIGKILL), std::pair(false, SIGSTOP),
                                       std::pair(true, SIGKILL), std::pair(true, SIGSTOP)}) {
    if (client && GetParam().clients == 1) continue;
    SCOPED_TRACE(std::string(client ? "client 1" : "worker 1") +
                 (signal == SIGKILL ? " is killed" : " is stopped"));
    ExpectWithin(kMost, [client = client, signal = signal](Clock::duration* took) {
      Job job(GetParam(), {kPatient});
      ASSERT_TRUE(job.Trains()) << job.Said();
      const auto lost = Clock::now();
      (client ? job.client(1) : job.cluster.daemon("worker", 1)).Signal(signal);
      for (int rank = 0; rank < job.mode.clients; ++rank) {
        if (client && rank == 1) continue;
        ExpectFails(job.client(rank), {"UNAVAILABLE", "/task:1"});
        *took = Clock::now() - lost;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(LostTasks, DeadReplica,
                         ::testing::Values(kInGraph, kInGraphReplicated, kInGraphCentral, kSync,
                                           kReplicated),
                         [](const auto& tested) {
                           std::string name = tested.param.name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(LostTasks, WithoutItsChiefAnAsyncJobGoesOnAndOneInStepEndsWithItsName) {
  for (const JobMode& mode : {kAsync, kHybrid, kSync, kBackup}) {
    Job job(mode, {kPatient});
    ASSERT_TRUE(job.Trains()) << job.Said();
    job.client(0).Signal(SIGKILL);
    ASSERT_TRUE(job.client(0).Wait(kLimit));
    if (mode.flags == kAsync.flags || mode.flags == kHybrid.flags) {
      EXPECT_TRUE(job.GoesOn(1)) << job.Said();
    } else {
      ExpectFails(job.client(1), {"UNAVAILABLE", "the chief (/job:worker/task:0)"});
    }
  }
}

}  // namespace
}  // namespace monograph
