// What the loss of a task means to a job, in every way of replication: the table in
// docs/replication.md, row by row.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/multiprocess/mnist_jobs.h"
#include "tools/run_metrics.h"

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

// From the loss until the last step of a client has failed, by the client's log.
constexpr auto kMostToName = 3s;

// A job whose clients log when their steps fail.
const std::vector<std::string> kToldInTime = {kPatient, "--log_level=debug"};

Clock::duration ToFailure(const ChildProcess& client, Clock::time_point lost) {
  const auto failed = client.LoggedAt(" failed: UNAVAILABLE");
  EXPECT_TRUE(failed.has_value()) << client.error();
  return failed.value_or(Clock::now()) - lost;
}

std::string NameOfMode(const ::testing::TestParamInfo<JobMode>& tested) {
  std::string name = tested.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// Ways whose replicas keep in step: none can go on without a worker or its client.
class DeadReplica : public ::testing::TestWithParam<JobMode> {};

TEST_P(DeadReplica, IsNamedToEveryClientWithinThreeSeconds) {
  struct Loss {
    int replica;
    bool client;
    int signal;
  };
  for (const Loss& loss :
       {Loss{1, false, SIGKILL}, Loss{1, false, SIGSTOP}, Loss{1, true, SIGKILL},
        Loss{1, true, SIGSTOP}, Loss{0, false, SIGSTOP}, Loss{0, true, SIGSTOP}}) {
    // What the chief loses the others hear of by what it leaves, if there are others.
    if ((loss.client || loss.replica == 0) && GetParam().clients == 1) continue;
    const std::string task = "/task:" + std::to_string(loss.replica);
    SCOPED_TRACE((loss.client ? "the client of " : "worker ") + task +
                 (loss.signal == SIGKILL ? " is killed" : " is stopped"));
    ExpectWithin(kMostToName, [&](Clock::duration* took) {
      Job job(GetParam(), kToldInTime);
      ASSERT_TRUE(job.Trains()) << job.Said();
      const auto lost = Clock::now();
      (loss.client ? job.client(loss.replica) : job.cluster.daemon("worker", loss.replica))
          .Signal(loss.signal);
      for (int rank = 0; rank < job.mode.clients; ++rank) {
        if (loss.client && rank == loss.replica) continue;
        ExpectFails(job.client(rank), {"UNAVAILABLE", task});
        *took = std::max(*took, ToFailure(job.client(rank), lost));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(LostTasks, DeadReplica,
                         ::testing::Values(kInGraph, kInGraphReplicated, kInGraphCentral, kSync,
                                           kReplicated),
                         NameOfMode);

// Ways whose variables are on parameter servers, whether replicas keep in step or not.
class DeadParameterServer : public ::testing::TestWithParam<JobMode> {};

TEST_P(DeadParameterServer, IsNamedToEveryClientWithinThreeSeconds) {
  // The one that counts the steps, and one that holds variables only.
  for (const auto& [task, signal] : {std::pair(0, SIGKILL), std::pair(1, SIGKILL),
                                     std::pair(0, SIGSTOP), std::pair(1, SIGSTOP)}) {
    const std::string lost_task = kLostPs + std::to_string(task);
    SCOPED_TRACE(lost_task + (signal == SIGKILL ? " is killed" : " is stopped"));
    ExpectWithin(kMostToName, [&, task = task, signal = signal](Clock::duration* took) {
      Job job(GetParam(), kToldInTime);
      ASSERT_TRUE(job.Trains()) << job.Said();
      const auto lost = Clock::now();
      job.cluster.daemon("ps", task).Signal(signal);
      for (const auto& client : job.clients) {
        ExpectFails(*client, {"UNAVAILABLE", lost_task});
        *took = std::max(*took, ToFailure(*client, lost));
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(LostTasks, DeadParameterServer, ::testing::Values(kAsync, kSync, kHybrid),
                         NameOfMode);

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

// Runs a program that waits inside its first print to standard output, until LetPrint.
class HeldAtItsFirstPrint {
 public:
  explicit HeldAtItsFirstPrint(std::vector<std::string> argv) {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    pipe_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const std::string fill(4096, '.');
    while (write(pipe_, fill.data(), fill.size()) > 0) {
    }
    argv.insert(argv.begin(), {"/bin/sh", "-c", "exec \"$0\" \"$@\" >" + path_});
    process_ = std::make_unique<ChildProcess>(argv);
  }
  ~HeldAtItsFirstPrint() { close(pipe_); }

  ChildProcess& process() { return *process_; }
  bool WaitUntilHeld() {
    for (const auto late = Clock::now() + kLimit; Clock::now() < late && !process_->Wait(10ms);) {
      std::ifstream file("/proc/" + std::to_string(process_->pid()) + "/syscall");
      long call = -1;
      std::string descriptor;
      if (file >> call >> descriptor && call == SYS_write && descriptor == "0x1") return true;
    }
    return false;
  }
  void LetPrint() {
    char bytes[4096];
    while (read(pipe_, bytes, sizeof bytes) > 0) {
    }
  }

 private:
  TemporaryFolder folder_;
  const std::string path_ = folder_.File("output");
  int pipe_ = -1;
  std::unique_ptr<ChildProcess> process_;
};

// A client prints its one line between its last step and what it asks of the tasks for its result.
TEST(LostTasks, AfterTheLastStepALostTaskCostsTheResultWhatItKnewAndNotTheJob) {
  for (const bool chief : {true, false}) {
    SCOPED_TRACE(chief);
    TestCluster cluster({.ps = 1, .workers = 2, .flags = {"--cpu_devices=2"}});
    const TemporaryFolder folder;
    std::vector<std::string> flags = {"--result_file=" + folder.File("result.json")};
    std::unique_ptr<ChildProcess> other;
    if (chief) {
      flags.insert(flags.end(), {"--replication=in_graph", "--num_batches=20", "--display_every=20",
                                 "--eval_batch_size=1000"});
    } else {
      // The chief makes few steps, and is gone before the last one.
      flags.insert(flags.end(), {"--num_batches=300", "--display_every=300"});
      other = std::make_unique<ChildProcess>(
          Client(cluster, 0, {kForever, "--batch_size=500", "--display_every=1"}));
      ASSERT_TRUE(other->WaitForOutput(", Step: ", kLimit)) << other->error();
    }
    HeldAtItsFirstPrint client(Client(cluster, chief ? 0 : 1, flags));
    if (!chief) {
      const auto trains = [](const auto& status) { return status.steps_done() > 0; };
      ASSERT_TRUE(cluster.WaitForStatus("worker", 1, trains, kLimit)) << client.process().error();
      other = nullptr;  // killed
    }
    ASSERT_TRUE(client.WaitUntilHeld()) << client.process().error();
    const std::string job = chief ? "worker" : "ps";
    const int task = chief ? 1 : 0;
    cluster.daemon(job, task).Signal(SIGKILL);
    ASSERT_TRUE(cluster.daemon(job, task).Wait(kLimit));
    const auto begin = Clock::now();
    client.LetPrint();
    EXPECT_TRUE(Succeeds(client.process())) << client.process().error();
    EXPECT_LT(Clock::now() - begin, 5s);

    const std::string lost = "/job:" + job + "/replica:0/task:" + std::to_string(task);
    const std::string said = client.process().error();
    const std::string path = ResultPath(folder.File("result.json"), chief ? 0 : 1);
    const size_t at = said.find("The result '" + path + "' lacks counters of tasks: ");
    ASSERT_NE(at, std::string::npos) << said;
    EXPECT_NE(said.find(lost, at), std::string::npos) << said;
    const Result<RunResult> result = ReadRunResult(path);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(result->seconds, 0);
    EXPECT_GT(result->tasks[0].bytes_sent, 0u) << "of the client itself";
    EXPECT_EQ(result->tasks.size(), chief ? 3u : 2u) << "all but the lost one";
    for (const RunResult::Task& answered : result->tasks) EXPECT_NE(answered.task, lost);
    // Variables are on the parameter server.
    EXPECT_EQ(result->digest.empty(), !chief);
    EXPECT_EQ(said.find("lacks digests of variables") == std::string::npos, chief) << said;
  }
}

}  // namespace
}  // namespace monograph
