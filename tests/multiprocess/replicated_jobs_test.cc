// Jobs of several clients, as users start them: mnist_replica, one process per worker. Who waits
// for whom, who comes back, and what a lost task means to each.
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/multiprocess/chrome_trace.h"
#include "tests/multiprocess/mnist_jobs.h"

namespace monograph {
namespace {

TEST(ReplicatedJobs, EveryWayOfSeveralClientsTrains) {
  const std::vector<std::vector<std::string>> modes = {
      {},
      {"--sync"},
      {"--dtype=half"},
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
    // It may have had no part in a step that is shown.
    EXPECT_NE(("\n" + chief.output()).find("\nTest-Accuracy: "), std::string::npos)
        << chief.output();
    const std::string output = chief.output() + other.output();
    if (name != "--replicas_to_aggregate=1") {
      EXPECT_NE(output.find(", Step: 25, Accuracy(batch): "), std::string::npos)
          << name << ": " << output;
    } else {
      // The chief, who prints, has no part in every update: it prints the first of its steps that
      // is past a multiple of 5.
      EXPECT_NE(output.find(", Accuracy(batch): "), std::string::npos) << output;
    }
  }
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReplicatedJobs, ATraceOfAJobIsWhole) {
  for (const char* mode : {"--replication=in_graph", "--variable_update=replicated"}) {
    TestCluster cluster({.ps = 1, .workers = 2});
    TemporaryFolder folder;
    ChildProcess client(Client(cluster, 0,
                               {"--replication=in_graph", mode, "--num_warmup_batches=2",
                                "--num_batches=2", "--trace_file=" + folder.File("trace.json")}));
    ASSERT_TRUE(Succeeds(client)) << mode << ": " << client.error();
    const TraceFacts facts = CheckTrace(ReadFile(folder.File("trace.json")));
    EXPECT_GE(facts.tasks, 2) << mode;
    EXPECT_GE(facts.arrows, 2) << mode;
  }
}

TEST(ReplicatedJobs, OthersWaitForTheChiefAndSayWhatFor) {
  TestCluster cluster({.ps = 1, .workers = 2});
  for (const auto& [job, task] : {std::pair("ps", 0), std::pair("worker", 1)})
    cluster.StatusOf(job, task);  // it is up: what is left to wait for is the chief
  ChildProcess other(Client(cluster, 1, {"--start_timeout=2"}));
  ExpectFails(other, {"DEADLINE_EXCEEDED",
                      "Waiting for model to be ready: variables not initialized: conv1/weights, ",
                      ", global_step", "the chief (worker 0) has not initialized them within 2 s"});
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
  const std::vector<std::string> flags = {kForever, "--container=job_1"};
  ChildProcess chief(Client(cluster, 0, flags));
  {
    ChildProcess other(Client(cluster, 1, flags));
    ASSERT_TRUE(other.WaitForOutput("Worker: 1, Step: ", kLimit)) << other.error();
    cluster.daemon("worker", 1).Signal(SIGKILL);
    ExpectFails(other, {"UNAVAILABLE", "/job:worker/replica:0/task:1"});
  }
  EXPECT_TRUE(chief.WaitForMoreOutput("Worker: 0, Step: ", kLimit)) << chief.error();
  cluster.Start("worker", 1);
  ChildProcess again(Client(cluster, 1, flags));
  EXPECT_TRUE(again.WaitForError("Going on at global step ", kLimit)) << again.error();
  EXPECT_TRUE(again.WaitForOutput("Worker: 1, Step: ", kLimit)) << again.error();
  EXPECT_TRUE(chief.WaitForMoreOutput("Worker: 0, Step: ", kLimit)) << chief.error();
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

TEST(ReplicatedJobs, OnReusedDaemonsNobodyStartsOnTheValuesOfAnEarlierRun) {
  for (const std::string mode : {"--async=false", "--sync"}) {
    TestCluster cluster({.ps = 2, .workers = 2});
    {
      ChildProcess chief(Client(cluster, 0, {mode})), other(Client(cluster, 1, {mode}));
      EXPECT_TRUE(Succeeds(chief)) << chief.error();
      EXPECT_TRUE(Succeeds(other)) << other.error();
    }
    // The next run: the chief comes last.
    ChildProcess other(Client(cluster, 1, {mode}));
    EXPECT_TRUE(other.WaitForError("were left by a run whose chief (worker 0) is gone", kLimit))
        << other.error();
    ChildProcess chief(Client(cluster, 0, {mode}));
    EXPECT_TRUE(Succeeds(chief)) << chief.error();
    EXPECT_TRUE(Succeeds(other)) << other.error();
    EXPECT_EQ(chief.error().find("Going on at global step"), std::string::npos) << chief.error();
    EXPECT_NE(("\n" + chief.output()).find("\nTest-Accuracy: "), std::string::npos)
        << chief.output();
    if (mode == "--sync") {
      EXPECT_NE(chief.output().find(", Step: 5, "), std::string::npos) << chief.output();
    }
  }
}

TEST(ReplicatedJobs, OnReusedDaemonsAKilledRunIsNoModelToStartFrom) {
  TestCluster cluster({.ps = 1, .workers = 2});
  {
    ChildProcess chief(Client(cluster, 0, {kForever}));
    ASSERT_TRUE(chief.WaitForOutput(", Step: ", kLimit)) << chief.error();
  }  // killed
  ASSERT_TRUE(cluster.WaitForStatus(
      "ps", 0, [](const auto& status) { return status.sessions() == 0; }, kLimit));
  ChildProcess other(Client(cluster, 1, {"--start_timeout=1"}));
  ExpectFails(other, {"DEADLINE_EXCEEDED", "were left by a run whose chief (worker 0) is gone",
                      "no chief has initialized them anew"});
  ChildProcess chief(Client(cluster, 0, {}));
  EXPECT_TRUE(Succeeds(chief)) << chief.error();
}

TEST(ReplicatedJobs, ClientsThatDefineAVariableDifferentlyHearOfBoth) {
  TestCluster cluster({.ps = 1, .workers = 2});
  ChildProcess chief(Client(cluster, 0, {kForever}));
  ASSERT_TRUE(chief.WaitForOutput(", Step: ", kLimit)) << chief.error();
  ChildProcess other(Client(cluster, 1, {"--fc=24"}));
  ExpectFails(other, {"FAILED_PRECONDITION", "'fc1/weights'", "float[3136,24]", "float[3136,16]"});
}

// The losses and accuracies that a job in one graph prints.
std::vector<std::string> Curve(const ChildProcess& client) {
  std::vector<std::string> curve;
  std::istringstream in(client.output());
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("step ")) curve.push_back(line.substr(0, line.find("  images/sec")));
    if (line.starts_with("test accuracy")) curve.push_back(line);
  }
  return curve;
}

TEST(ReplicatedJobs, JobsInContainersOfTheirOwnTrainAtOnceOnOneSetOfDaemonsAsIfAlone) {
  TestCluster cluster({.ps = 2, .workers = 2});
  const auto job = [&](const std::string& seed, const std::string& container) {
    return std::make_unique<ChildProcess>(Client(
        cluster, 0, {"--replication=in_graph", "--seed=" + seed, "--container=" + container}));
  };
  std::vector<std::vector<std::string>> alone;
  for (const std::string seed : {"1", "2"}) {
    const auto client = job(seed, "alone_" + seed);
    ASSERT_TRUE(Succeeds(*client)) << client->error();
    alone.push_back(Curve(*client));
    EXPECT_EQ(alone.back().size(), 7u) << client->output();
  }
  EXPECT_NE(alone[0], alone[1]);
  const auto one = job("1", "one"), other = job("2", "other");
  EXPECT_TRUE(Succeeds(*one)) << one->error();
  EXPECT_TRUE(Succeeds(*other)) << other->error();
  EXPECT_EQ(Curve(*one), alone[0]);
  EXPECT_EQ(Curve(*other), alone[1]);
}

TEST(ReplicatedJobs, LaunchStartsEveryTaskOfTheBooksRunAndEndsThem) {
  ChildProcess launch({MonographPath(), "launch", "--ps=1", "--workers=3", "--", MG_MNIST_REPLICA,
                       "--replication=between_graph", "--data_name=synthetic", "--fc=16",
                       "--batch_size=10", "--num_batches=60", "--num_warmup_batches=0",
                       "--display_every=10"});
  EXPECT_TRUE(Succeeds(launch)) << launch.error();
  const std::string output = launch.output();
  const size_t accuracy = output.find("[client/0] Test-Accuracy: ");
  ASSERT_NE(accuracy, std::string::npos) << output;
  EXPECT_EQ(output.find("ccuracy: ", accuracy + 26), std::string::npos) << "once is enough";
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

TEST(ReplicatedJobs, AWorkerOfTheCifarExampleWaitsForItsChiefAsLongAsItIsTold) {
  TestCluster cluster({.ps = 1, .workers = 2, .flags = {"--cpu_devices=2"}});
  for (const auto& [job, task] : {std::pair("ps", 0), std::pair("worker", 1)})
    cluster.StatusOf(job, task);
  ChildProcess other(
      {MG_CIFAR_HYBRID, "--cluster=" + cluster.json(), "--task_index=1", "--start_timeout=2"});
  const std::optional<Exit> end = other.Wait(60s);
  ASSERT_TRUE(end.has_value()) << other.error();
  EXPECT_EQ(end->code, 1);
  EXPECT_NE(other.error().find("has not initialized them within 2 s"), std::string::npos)
      << other.error();
}

TEST(ReplicatedJobs, AWorkerOfTheCifarExampleThatComesAfterTheEndFindsNothingToDo) {
  TestCluster cluster({.ps = 1, .workers = 2, .flags = {"--cpu_devices=2"}});
  for (const char* task : {"0", "1"}) {
    ChildProcess client({MG_CIFAR_HYBRID, "--cluster=" + cluster.json(),
                         std::string("--task_index=") + task, "--num_batches=2", "--batch_size=4",
                         "--start_timeout=20"});
    EXPECT_TRUE(Succeeds(client)) << task << ": " << client.error();
  }
}

// Lets a process run for less than a twentieth of its time.
class SlowedDown {
 public:
  explicit SlowedDown(pid_t pid) : pid_(pid) {
    thread_ = std::thread([this] {
      while (!over_) {
        kill(pid_, SIGSTOP);
        std::this_thread::sleep_for(25ms);
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
  for (int worker = 0; worker < 2; ++worker) cluster.StatusOf("worker", worker);  // it is up
  const SlowedDown slow(cluster.daemon("worker", 1).pid());
  ChildProcess client({MG_MNIST_REPLICA, "--data_name=synthetic", "--fc=64", "--batch_size=160",
                       "--num_warmup_batches=1", "--num_batches=1", "--display_every=1",
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
