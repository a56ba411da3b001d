// Jobs of several clients, as users start them: mnist_replica, one process per worker. Who waits
// for whom, who comes back, and what a lost task means to each.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/multiprocess/cluster_fixture.h"

namespace monograph {
namespace {

// A short job of two workers.
std::vector<std::string> Client(const TestCluster& cluster, int rank,
                                const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {MG_MNIST_REPLICA,
                                   "--data_name=synthetic",
                                   "--fc=16",
                                   "--batch_size=20",
                                   "--num_warmup_batches=0",
                                   "--display_every=5",
                                   "--num_batches=30",
                                   "--replication=between_graph",
                                   "--cluster=" + cluster.json(),
                                   "--task_index=" + std::to_string(rank)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

constexpr auto kLimit = 60s;
const char kForever[] = "--num_batches=1000000";

bool Succeeds(ChildProcess& client) {
  const std::optional<Exit> exit = client.Wait(kLimit);
  return exit && !exit->signalled && exit->code == 0;
}

// It ends with 1 and says all of `parts` in its error.
void ExpectFails(ChildProcess& client, std::initializer_list<std::string> parts) {
  const std::optional<Exit> exit = client.Wait(kLimit);
  ASSERT_TRUE(exit) << "it still runs: " << client.output() << client.error();
  EXPECT_EQ(exit->code, 1) << client.error();
  const std::string error = client.error();
  const size_t line = error.find("mnist_replica: ");
  ASSERT_NE(line, std::string::npos) << error;
  EXPECT_EQ(error.find("mnist_replica: ", line + 1), std::string::npos) << error;
  for (const std::string& part : parts)
    EXPECT_NE(error.find(part, line), std::string::npos) << "no '" << part << "' in: " << error;
}

TEST(ReplicatedJobs, EveryWayOfSeveralClientsTrains) {
  const std::vector<std::vector<std::string>> modes = {
      {},
      {"--sync"},
      {"--sync", "--replicas_to_aggregate=1"},
      {"--variable_update=replicated"},
      {"--replication=hybrid", "--replicas_per_worker=2"},
      {"--ps_strategy=round_robin", "--max_variable_bytes=20000"}};
  for (const std::vector<std::string>& mode : modes) {
    TestCluster cluster({.ps = 2, .workers = 2, .flags = {"--cpu_devices=2"}});
    ChildProcess chief(Client(cluster, 0, mode)), other(Client(cluster, 1, mode));
    const std::string name = mode.empty() ? "async" : mode.back();
    EXPECT_TRUE(Succeeds(chief)) << name << ": " << chief.error();
    EXPECT_TRUE(Succeeds(other)) << name << ": " << other.error();
    EXPECT_NE(chief.output().find("\nTest-Accuracy: "), std::string::npos) << chief.output();
    EXPECT_NE((chief.output() + other.output()).find(", Step: 25, Accuracy(batch): "),
              std::string::npos)
        << name << ": " << chief.output() << other.output();
  }
}

TEST(ReplicatedJobs, OthersWaitForTheChiefAndSayWhatFor) {
  TestCluster cluster({.ps = 1, .workers = 2});
  ChildProcess other(Client(cluster, 1, {"--start_timeout=2"}));
  ExpectFails(other, {"DEADLINE_EXCEEDED",
                      "Waiting for model to be ready: variables not initialized: conv1/weights, ",
                      ", global_step", "the chief (worker 0)"});
  EXPECT_NE(other.error().find("Waiting for model to be ready"),
            other.error().rfind("Waiting for model to be ready"))
      << "it did not say so before it gave up";
}

TEST(ReplicatedJobs, TasksMayComeUpInAnyOrder) {
  TestCluster cluster({.ps = 1, .workers = 2, .start = false});
  ChildProcess other(Client(cluster, 1, {}));
  cluster.Start("worker", 1);
  ChildProcess chief(Client(cluster, 0, {}));
  cluster.Start("ps", 0);
  ASSERT_TRUE(other.WaitForError("Waiting for model to be ready", 20s)) << other.error();
  cluster.Start("worker", 0);
  EXPECT_TRUE(Succeeds(chief)) << chief.error();
  EXPECT_TRUE(Succeeds(other)) << other.error();
}

TEST(ReplicatedJobs, AWorkerOfAnAsyncJobMayDieAndComeBackWhileTheOthersGoOn) {
  TestCluster cluster({.ps = 1, .workers = 2});
  const std::vector<std::string> flags = {"--num_batches=400", "--container=job_1"};
  ChildProcess chief(Client(cluster, 0, flags));
  {
    ChildProcess other(Client(cluster, 1, flags));
    ASSERT_TRUE(other.WaitForOutput("Worker: 1, Step: ", kLimit)) << other.error();
    cluster.daemon("worker", 1).Signal(SIGKILL);
    ExpectFails(other, {"UNAVAILABLE", "/job:worker/replica:0/task:1"});
  }
  cluster.Start("worker", 1);
  ChildProcess again(Client(cluster, 1, flags));
  EXPECT_TRUE(again.WaitForError("Going on at global step ", kLimit)) << again.error();
  EXPECT_TRUE(Succeeds(chief)) << chief.error();
  EXPECT_TRUE(Succeeds(again)) << again.error();
}

TEST(ReplicatedJobs, AChiefThatComesBackKeepsTheVariables) {
  TestCluster cluster({.ps = 1, .workers = 2});
  const std::vector<std::string> flags = {kForever, "--container=job_1"};
  ChildProcess other(Client(cluster, 1, flags));
  {
    ChildProcess chief(Client(cluster, 0, flags));
    ASSERT_TRUE(chief.WaitForOutput("Worker: 0, Step: ", kLimit)) << chief.error();
    chief.Signal(SIGKILL);
    chief.Wait(kLimit);
  }
  ChildProcess chief(Client(cluster, 0, flags));
  EXPECT_TRUE(chief.WaitForError("Going on at global step ", kLimit)) << chief.error();
}

TEST(ReplicatedJobs, ALostParameterServerIsOneClearErrorAtEveryClient) {
  TestCluster cluster({.ps = 1, .workers = 2});
  ChildProcess chief(Client(cluster, 0, {kForever})), other(Client(cluster, 1, {kForever}));
  ASSERT_TRUE(chief.WaitForOutput(", Step: ", kLimit)) << chief.error();
  ASSERT_TRUE(other.WaitForOutput(", Step: ", kLimit)) << other.error();
  cluster.daemon("ps", 0).Signal(SIGKILL);
  ExpectFails(chief, {"UNAVAILABLE", "/job:ps/replica:0/task:0"});
  ExpectFails(other, {"UNAVAILABLE", "/job:ps/replica:0/task:0"});
}

TEST(ReplicatedJobs, InStepALostWorkerFailsTheJobWithItsName) {
  for (const std::string mode : {"--sync", "--variable_update=replicated"}) {
    TestCluster cluster({.ps = 1, .workers = 2});
    const std::vector<std::string> flags = {kForever, mode, "--worker_timeout=3"};
    ChildProcess chief(Client(cluster, 0, flags)), other(Client(cluster, 1, flags));
    ASSERT_TRUE(chief.WaitForOutput(", Step: ", kLimit)) << chief.error();
    other.Signal(SIGKILL);
    ExpectFails(chief, {"/job:worker", "task:1"});
  }
}

TEST(ReplicatedJobs, BackupWorkersCoverALostWorker) {
  TestCluster cluster({.ps = 1, .workers = 2});
  const std::vector<std::string> flags = {"--sync", "--replicas_to_aggregate=1",
                                          "--num_batches=200"};
  ChildProcess chief(Client(cluster, 0, flags)), other(Client(cluster, 1, flags));
  ASSERT_TRUE(chief.WaitForOutput(", Step: 5,", kLimit)) << chief.error();
  other.Signal(SIGKILL);
  EXPECT_TRUE(Succeeds(chief)) << chief.error();
}

TEST(ReplicatedJobs, ClientsThatDefineAVariableDifferentlyHearOfBoth) {
  TestCluster cluster({.ps = 1, .workers = 2});
  ChildProcess chief(Client(cluster, 0, {kForever}));
  ASSERT_TRUE(chief.WaitForOutput(", Step: ", kLimit)) << chief.error();
  ChildProcess other(Client(cluster, 1, {"--fc=24"}));
  ExpectFails(other, {"FAILED_PRECONDITION", "'fc1/weights'", "float[3136,24]", "float[3136,16]"});
}

TEST(ReplicatedJobs, LaunchStartsEveryTaskOfTheBooksRunAndEndsThem) {
  ChildProcess launch({MonographPath(), "launch", "--ps=1", "--workers=3", "--", MG_MNIST_REPLICA,
                       "--replication=between_graph", "--data_name=synthetic", "--fc=16",
                       "--batch_size=10", "--num_batches=60", "--num_warmup_batches=0",
                       "--display_every=10"});
  EXPECT_TRUE(Succeeds(launch)) << launch.error();
  const std::string output = launch.output();
  EXPECT_NE(output.find("[client/0] Test-Accuracy: "), std::string::npos) << output;
  for (int step = 10; step <= 60; step += 10) {
    const std::string line = ", Step: " + std::to_string(step) + ", Accuracy(batch): ";
    const size_t at = output.find(line);
    ASSERT_NE(at, std::string::npos) << output;
    EXPECT_EQ(output.find(line, at + 1), std::string::npos) << "two workers made one step";
  }
}

TEST(ReplicatedJobs, AProgramOfJobPsServesUntilItIsToldToEnd) {
  TestCluster cluster({.ps = 1, .workers = 1, .start = false});
  ChildProcess ps(
      {MG_MNIST_REPLICA, "--job_name=ps", "--task_index=0", "--cluster=" + cluster.json()});
  cluster.Start("worker", 0);
  ChildProcess chief(Client(cluster, 0, {}));
  EXPECT_TRUE(Succeeds(chief)) << chief.error();
  ps.Signal(SIGTERM);
  EXPECT_TRUE(Succeeds(ps)) << ps.error();
}

TEST(ReplicatedJobs, HybridWorkersOfTheCifarExampleShareTheStepsOfOneJob) {
  ChildProcess launch({MonographPath(), "launch", "--ps=1", "--workers=2", "--clients=per_worker",
                       "--executor_flags=--cpu_devices=2", "--", MG_CIFAR_HYBRID,
                       "--num_batches=40", "--batch_size=8"});
  EXPECT_TRUE(Succeeds(launch)) << launch.error();
  for (const std::string step : {"20", "40"})
    EXPECT_NE(launch.output().find(", Step: " + step + ", Loss: "), std::string::npos)
        << launch.output();
}

// Stops a process for three quarters of its time.
class SlowedDown {
 public:
  explicit SlowedDown(pid_t pid) : pid_(pid) {
    thread_ = std::thread([this] {
      while (!over_) {
        kill(pid_, SIGSTOP);
        std::this_thread::sleep_for(3ms);
        kill(pid_, SIGCONT);
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  ~SlowedDown() {
    over_ = true;
    thread_.join();
  }

 private:
  const pid_t pid_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

TEST(ReplicatedJobs, AMeasuredSplitGivesTheSlowerWorkerLess) {
  TestCluster cluster({.ps = 1, .workers = 2});
  const SlowedDown slow(cluster.daemon("worker", 1).pid());
  ChildProcess client({MG_MNIST_REPLICA, "--data_name=synthetic", "--fc=64", "--batch_size=160",
                       "--num_warmup_batches=2", "--num_batches=3", "--display_every=1",
                       "--cluster=" + cluster.json(), "--split=measured"});
  EXPECT_TRUE(Succeeds(client)) << client.error();
  int fast = 0, slower = 0;
  const std::string output = client.output();
  const size_t at = output.find("--split=measured: weights=");
  ASSERT_NE(at, std::string::npos) << output;
  ASSERT_EQ(std::sscanf(output.c_str() + at, "--split=measured: weights=%d,%d", &fast, &slower), 2);
  EXPECT_LT(slower, fast) << output;
}

}  // namespace
}  // namespace monograph
