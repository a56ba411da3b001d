// Jobs that lose a task, or a client, and go on by themselves. Ways that keep in step end with the
// checkpoint of a job that lost nothing, bit for bit: weights, slots and global_step.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <utility>

#include "base/thread.h"
#include "client/registries.h"
#include "examples/models/mnist_cnn.h"
#include "graph/batch_shards.h"
#include "ops/constant/constant.h"
#include "ops/input/input.h"
#include "tests/multiprocess/mnist_jobs.h"
#include "train/monitored_training_session.h"
#include "train/strategy.h"

namespace monograph {
namespace {

constexpr int kWorkers = 2, kSteps = 12, kSaveSteps = 4;
constexpr int64_t kLossAfter = 6;  // after a checkpoint, before the next
constexpr int64_t kBatch = 25, kPixels = 28 * 28, kSeed = 7;

struct Way {
  const char* name;
  Replication replication;
  VariableUpdate update;
  bool async = false;

  int clients() const { return replication == Replication::kInGraph ? 1 : kWorkers; }
  int ps() const { return update == VariableUpdate::kParameterServer ? 2 : 0; }
};
constexpr Way kInGraph{"in_graph", Replication::kInGraph, VariableUpdate::kParameterServer},
    kInGraphReplicated{"in_graph_replicated", Replication::kInGraph, VariableUpdate::kReplicated},
    kSync{"between_graph_sync", Replication::kBetweenGraph, VariableUpdate::kParameterServer},
    kReplicated{"between_graph_replicated", Replication::kBetweenGraph,
                VariableUpdate::kReplicated},
    kAsync{"between_graph_async", Replication::kBetweenGraph, VariableUpdate::kParameterServer,
           true};

Strategy StrategyOf(const Way& way, const ClusterSpec& cluster, int rank) {
  const std::vector<std::string> workers = cluster.Tasks("worker");
  if (way.replication == Replication::kInGraph) {
    return way.ps() == 0
               ? MirroredStrategy(workers)
               : Strategy{.devices = workers, .options = {.variable_devices = cluster.Tasks("ps")}};
  }
  Strategy strategy = way.ps() > 0 ? ParameterServerStrategy(cluster, rank).value()
                                   : MultiWorkerMirroredStrategy(cluster, rank).value();
  strategy.options.async = way.async;
  if (!way.async) strategy.options.global_batch_size = kBatch;
  return strategy;
}

// One client of a job, in a thread of the test.
struct Client {
  std::function<void(const TrainedStep&)> on_step = {};
  std::shared_ptr<TrainHook> hook = {};
  int64_t data_ends = INT64_MAX;  // after so many batches
  std::chrono::milliseconds recovery_timeout = kLimit;
  std::string dir;

  int64_t until = kSteps;

  // Filled in by Train.
  std::promise<void> ended;
  std::vector<int64_t> steps = {};  // global steps, in the order in which they were made
  std::string said = {};

  Status Train(const Way& way, const ClusterSpec& cluster, int rank);
};

Status Client::Train(const Way& way, const ClusterSpec& cluster, int rank) {
  const Strategy strategy = StrategyOf(way, cluster, rank);
  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(kSeed);
  const Scope here = root.WithDevice("/job:client/task:0");
  const int64_t rows = RowsByShares(kBatch, std::vector<int64_t>(static_cast<size_t>(way.clients()),
                                                                 1))[static_cast<size_t>(rank)];
  const Outputs feeds = {Placeholder(here.WithOpName("images"), DT_FLOAT, {rows, kPixels}),
                         Placeholder(here.WithOpName("labels"), DT_INT32, {rows})};
  const examples::MnistCnn model{.conv1 = 4, .conv2 = 8, .fc = 32, .dropout = 0.5, .seed = kSeed};
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      strategy.Replicate(root, feeds, model.Training(), Adam(1e-2)));
  MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> data,
                      LoadDataset({.name = "synthetic", .seed = kSeed}));
  MG_ASSIGN_OR_RETURN(
      std::shared_ptr<BatchStream> batches,
      BatchStream::Make(
          std::move(data),
          {.batch_size = kBatch, .seed = kSeed, .shard = rank, .num_shards = way.clients()}));
  MonitoredTrainingOptions options{.checkpoint_dir = dir,
                                   .saver = std::make_shared<Saver>(root),
                                   .save_checkpoint = {.steps = kSaveSteps},
                                   .recovery_timeout = recovery_timeout};
  MG_RETURN_IF_ERROR(root.status());
  options.trainer.start_timeout = kLimit;
  options.trainer.say = [this](const std::string& text) { said += text + "\n"; };
  if (hook != nullptr) options.trainer.hooks = {hook};
  MonitoredTrainingSession training(
      [&](std::chrono::milliseconds start_timeout) {
        return Session::Connect(
            cluster, graph,
            {.device_filters = strategy.device_filters, .start_timeout = start_timeout});
      },
      step, {feeds},
      [&](int, int64_t batch) -> Result<std::vector<Tensor>> {
        if (batch >= data_ends) return OutOfRange("no more files");
        MG_ASSIGN_OR_RETURN(Batch fed, batches->Get(batch));
        return std::vector<Tensor>{std::move(fed.images), std::move(fed.labels)};
      },
      std::move(options));
  MG_RETURN_IF_ERROR(training.Start());
  MG_RETURN_IF_ERROR(training.Train(until, [this](const TrainedStep& made) {
    steps.push_back(made.global_step);
    if (on_step) on_step(made);
  }));
  if (data_ends < INT64_MAX) ended.set_value();
  return training.Close();
}

// All clients of a way, each in a thread; the chief is `clients[0]`.
class RunningJob {
 public:
  RunningJob(const Way& its_way, const ClusterSpec& cluster)
      : way(its_way), clients(static_cast<size_t>(way.clients())), cluster_(cluster) {
    for (Client& client : clients) client.dir = dir.path();
  }
  ~RunningJob() { Join(); }

  void Start() {
    for (int rank = 0; rank < way.clients(); ++rank) {
      threads_.push_back(StartThread("client", [this, rank] {
        Client& client = clients[static_cast<size_t>(rank)];
        results[rank] = client.Train(way, cluster_, rank);
        // Who left comes back, as another process would.
        if (client.hook != nullptr && results[rank].code() == Code::kInternal) {
          client.hook = nullptr;
          results[rank] = client.Train(way, cluster_, rank);
        }
      }));
    }
  }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  std::string Said() const {
    std::string text = way.name;
    for (int rank = 0; rank < way.clients(); ++rank) {
      text += "\nclient " + std::to_string(rank) + ", " + results[rank].ToString() + "\n" +
              clients[static_cast<size_t>(rank)].said;
    }
    return text;
  }
  void ExpectSuccess() {
    Join();
    for (int rank = 0; rank < way.clients(); ++rank) EXPECT_TRUE(results[rank].ok()) << Said();
  }
  // What the last checkpoint holds.
  std::map<std::string, Tensor> Trained() const {
    std::map<std::string, Tensor> values;
    const auto latest = LatestCheckpoint(dir.path());
    EXPECT_TRUE(latest.ok() && *latest) << Said();
    for (const SavedVariable& variable : ListVariables(**latest).value())
      values[variable.name] = LoadVariable(**latest, variable.name).value();
    return values;
  }

  const Way way;
  TemporaryFolder dir;
  std::vector<Client> clients;
  Status results[kWorkers];

 private:
  const ClusterSpec cluster_;
  std::vector<std::thread> threads_;
};

ClusterOptions Daemons(const Way& way) { return {.ps = way.ps(), .workers = kWorkers}; }

// What a job that loses nothing ends with.
const std::map<std::string, Tensor>& Uninterrupted(const Way& way) {
  static auto* known = new std::map<std::string, std::map<std::string, Tensor>>();
  auto& values = (*known)[way.name];
  if (values.empty()) {
    TestCluster cluster(Daemons(way));
    RunningJob job(way, cluster.spec());
    job.Start();
    job.ExpectSuccess();
    values = job.Trained();
  }
  return values;
}

void ExpectTheBitsOfAnUninterruptedJob(const RunningJob& job) {
  const std::map<std::string, Tensor>& expected = Uninterrupted(job.way);
  const std::map<std::string, Tensor> values = job.Trained();
  EXPECT_EQ(values.size(), expected.size());
  EXPECT_EQ(values.at("global_step").scalar<int64_t>(), kSteps);
  for (const auto& [name, value] : expected) {
    const auto found = values.find(name);
    ASSERT_NE(found, values.end()) << name;
    EXPECT_TRUE(SameBits(value, found->second)) << name << " differs: " << job.Said();
  }
}

struct Task {
  const char* job;
  int task;
};

// Trains; between two steps of `client`, the first of which is kLossAfter or later, `lost` is
// killed, and started again while the client notices. `resumed` is told of the client's next step.
void Lose(RunningJob* job, TestCluster* cluster, const Task& lost, size_t client = 0,
          const std::function<void()>& resumed = {}) {
  std::promise<void> reached, killed;
  std::future<void> there = reached.get_future(), go = killed.get_future();
  bool told = false;
  job->clients[client].on_step = [&](const TrainedStep& made) {
    if (told && resumed) resumed();
    if (made.global_step < kLossAfter || std::exchange(told, true)) return;
    reached.set_value();
    go.wait();
  };
  job->Start();
  if (there.wait_for(kLimit) == std::future_status::ready) {
    cluster->daemon(lost.job, lost.task).Signal(SIGKILL);
    EXPECT_TRUE(cluster->daemon(lost.job, lost.task).Wait(kLimit));
  } else {
    ADD_FAILURE() << "it did not come to step " << kLossAfter;
  }
  killed.set_value();
  cluster->Start(lost.job, lost.task);
  job->Join();
}

struct Case {
  Way way;
  Task lost;
};
class InStep : public ::testing::TestWithParam<Case> {};

TEST_P(InStep, AJobThatLosesATaskEndsWithTheBitsOfOneThatDoesNot) {
  const auto& [way, lost] = GetParam();
  TestCluster cluster(Daemons(way));
  RunningJob job(way, cluster.spec());
  Lose(&job, &cluster, lost);
  job.ExpectSuccess();
  ExpectTheBitsOfAnUninterruptedJob(job);
  // The steps since the checkpoint were made again.
  const std::vector<int64_t>& steps = job.clients[0].steps;
  EXPECT_EQ(std::count(steps.begin(), steps.end(), kSaveSteps + 1), 2) << job.Said();
  EXPECT_EQ(std::count(steps.begin(), steps.end(), kSaveSteps), 1) << job.Said();
  EXPECT_NE(job.clients[0].said.find("attempt 1 of 5\nRestoring parameters from "),
            std::string::npos)
      << job.Said();
}

INSTANTIATE_TEST_SUITE_P(
    Recovery, InStep,
    ::testing::Values(Case{kInGraph, {"worker", 1}}, Case{kInGraph, {"ps", 0}},
                      Case{kInGraphReplicated, {"worker", 0}}, Case{kSync, {"worker", 1}},
                      Case{kSync, {"worker", 0}}, Case{kSync, {"ps", 0}}, Case{kSync, {"ps", 1}},
                      Case{kReplicated, {"worker", 1}}, Case{kReplicated, {"worker", 0}}),
    [](const auto& tested) {
      const Case& c = tested.param;
      return std::string(c.way.name) + "_loses_" + c.lost.job + "_" + std::to_string(c.lost.task);
    });

TEST(Recovery, ALossWhileTheFirstSessionsAreOpenedIsOneLikeAnyOther) {
  for (const auto& [way, lost] :
       {std::pair(kInGraph, Task{"worker", 1}), std::pair(kInGraphReplicated, Task{"worker", 0}),
        std::pair(kSync, Task{"ps", 1}), std::pair(kSync, Task{"ps", 0}),
        std::pair(kReplicated, Task{"worker", 1})}) {
    TestCluster cluster(Daemons(way));
    RunningJob job(way, cluster.spec());
    job.Start();
    ASSERT_TRUE(cluster.WaitForStatus(
        lost.job, lost.task, [](const auto& status) { return status.sessions() > 0; }, kLimit));
    cluster.daemon(lost.job, lost.task).Signal(SIGKILL);
    EXPECT_TRUE(cluster.daemon(lost.job, lost.task).Wait(kLimit));
    cluster.Start(lost.job, lost.task);
    job.ExpectSuccess();
    EXPECT_NE(job.clients[0].said.find("attempt 1 of 5\n"), std::string::npos) << job.Said();
    ExpectTheBitsOfAnUninterruptedJob(job);
  }
}

// Goes on to kSteps, which is the end for those whose data does not end before.
class EndOfData : public ::testing::TestWithParam<Way> {};

TEST_P(EndOfData, OfOneClientEndsAllThatKeepInStepWithTheSameLastStepSaved) {
  const Way& way = GetParam();
  for (int ending = 0; ending < way.clients(); ++ending) {
    TestCluster cluster(Daemons(way));
    RunningJob job(way, cluster.spec());
    for (Client& client : job.clients) client.until = 1'000'000;
    job.clients[static_cast<size_t>(ending)].data_ends = kSteps;
    job.Start();
    job.ExpectSuccess();
    for (const Client& client : job.clients) {
      EXPECT_EQ(client.steps.size(), size_t{kSteps}) << job.Said();
      EXPECT_NE(client.said.find("The data has ended at global step 12: "), std::string::npos)
          << job.Said();
    }
    ExpectTheBitsOfAnUninterruptedJob(job);
  }
}

INSTANTIATE_TEST_SUITE_P(Recovery, EndOfData,
                         ::testing::Values(kInGraph, kInGraphReplicated, kSync, kReplicated),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Recovery, TheEndOfDataReachesAClientThatIsBusyBetweenTwoSteps) {
  for (const auto& [way, ending] :
       {std::pair(kSync, size_t{0}), std::pair(kSync, size_t{1}), std::pair(kReplicated, size_t{0}),
        std::pair(kReplicated, size_t{1})}) {
    TestCluster cluster(Daemons(way));
    RunningJob job(way, cluster.spec());
    for (Client& client : job.clients) client.until = 1'000'000;
    Client& first = job.clients[ending];
    first.data_ends = kSteps;
    job.clients[1 - ending].on_step = [&](const TrainedStep& made) {
      if (made.global_step < kSteps) return;
      EXPECT_EQ(first.ended.get_future().wait_for(kLimit), std::future_status::ready)
          << "the first one did not end";
    };
    job.Start();
    job.ExpectSuccess();
    ExpectTheBitsOfAnUninterruptedJob(job);
  }
}

TEST(Recovery, AtTheirOwnPaceEachClientGoesOnToTheEndOfItsOwnData) {
  TestCluster cluster(Daemons(kAsync));
  RunningJob job(kAsync, cluster.spec());
  for (Client& client : job.clients) client.until = 1'000'000;
  job.clients[0].data_ends = 9;
  job.clients[1].data_ends = 5;
  job.Start();
  job.ExpectSuccess();
  for (const Client& client : job.clients) {
    EXPECT_FALSE(client.steps.empty()) << job.Said();
    EXPECT_NE(client.said.find("The data has ended at global step "), std::string::npos)
        << job.Said();
  }
  EXPECT_GE(job.Trained().at("global_step").scalar<int64_t>(), 9) << job.Said();
}

// A client that ends in the middle, without a word.
class Leaves : public TrainHook {
 public:
  Status AfterStep(HookContext* context) override {
    return context->step.global_step == kLossAfter ? Internal("leaves") : Status();
  }
};

TEST(Recovery, InStepAClientThatLeavesAndComesBackEndsWithTheBitsOfAJobWithoutThat) {
  for (const size_t leaving : {1, 0}) {
    TestCluster cluster(Daemons(kSync));
    RunningJob job(kSync, cluster.spec());
    job.clients[leaving].hook = std::make_shared<Leaves>();
    job.Start();
    job.ExpectSuccess();
    EXPECT_EQ(job.clients[leaving].hook, nullptr) << "it did not leave";
    // Whichever part of an update it had a hand in.
    const std::string why = leaving == 1 ? "the session of replica 1 (/job:worker/task:1) has ended"
                                         : "the chief (/job:worker/task:0)";
    EXPECT_NE(job.clients[1 - leaving].said.find(why), std::string::npos) << job.Said();
    ExpectTheBitsOfAnUninterruptedJob(job);
  }
}

TEST(Recovery, InStepTheOthersGoOnWhenAClientThatWasKilledIsStartedAgain) {
  for (const JobMode& mode : {JobMode{"sync", {"--sync"}, 1, 2},
                              JobMode{"replicated", {"--variable_update=replicated"}, 0, 2}}) {
    for (const int killed : {1, 0}) {
      const TemporaryFolder dir;
      Job job(mode, {"--save_steps=5", "--train_dir=" + dir.path()});
      ASSERT_TRUE(job.client(0).WaitForOutput(", Step: 10, ", kLimit)) << job.Said();
      job.client(killed).Signal(SIGKILL);
      ASSERT_TRUE(job.client(killed).Wait(kLimit));
      job.StartClient(killed);
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_TRUE(job.client(rank).WaitForError("Going on at global step ", kLimit))
            << job.Said();
      }
      EXPECT_NE(job.client(0).error().find("Restoring parameters from "), std::string::npos)
          << job.Said();
      EXPECT_TRUE(job.GoesOn(0)) << job.Said();
    }
  }
}

TEST(Recovery, AtTheirOwnPaceALostWorkerComesBackToTheVariablesThatAreThere) {
  for (const int lost : {1, 0}) {
    TestCluster cluster(Daemons(kAsync));
    RunningJob job(kAsync, cluster.spec());
    // The other one waits, so that steps are left for the one that comes back.
    std::promise<void> resumed;
    std::shared_future<void> back = resumed.get_future().share();
    job.clients[static_cast<size_t>(1 - lost)].on_step = [&](const TrainedStep& made) {
      if (made.global_step >= kLossAfter) {
        EXPECT_EQ(back.wait_for(kLimit), std::future_status::ready) << "it did not come back";
      }
    };
    bool told = false;
    Lose(&job, &cluster, {"worker", lost}, static_cast<size_t>(lost), [&] {
      if (!std::exchange(told, true)) resumed.set_value();
    });
    job.ExpectSuccess();
    const Client& client = job.clients[static_cast<size_t>(lost)];
    EXPECT_NE(client.said.find("attempt 1 of 5\nGoing on at global step "), std::string::npos)
        << job.Said();
    EXPECT_TRUE(std::is_sorted(client.steps.begin(), client.steps.end())) << job.Said();
  }
}

TEST(Recovery, AtTheirOwnPaceALostParameterServerMakesAllGoBackToTheCheckpoint) {
  for (const int lost : {0, 1}) {
    TestCluster cluster(Daemons(kAsync));
    RunningJob job(kAsync, cluster.spec());
    Lose(&job, &cluster, {"ps", lost});
    job.ExpectSuccess();
    EXPECT_NE(job.clients[0].said.find("Restoring parameters from "), std::string::npos)
        << job.Said();
    EXPECT_GE(job.Trained().at("global_step").scalar<int64_t>(), kSteps);
  }
}

TEST(Recovery, ATaskThatDoesNotComeBackIsNamedWhenTheTimeIsOver) {
  TestCluster cluster(Daemons(kInGraph));
  Client client{.recovery_timeout = 3s};
  const TemporaryFolder dir;
  client.dir = dir.path();
  client.on_step = [&](const TrainedStep& made) {
    if (made.global_step == kLossAfter) cluster.daemon("worker", 1).Signal(SIGKILL);
  };
  ExpectError(client.Train(kInGraph, cluster.spec(), 0), Code::kUnavailable,
              {"cannot reach every task", "/job:worker/replica:0/task:1",
               "the run does not go on: no new step within 3 s"});
  EXPECT_EQ(client.steps.back(), kLossAfter);
}

// The process that `monograph launch` started for a task.
pid_t DaemonOf(const ChildProcess& launch, const std::string& job, int task) {
  const std::string pid = std::to_string(launch.pid());
  std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
  for (pid_t child = 0; children >> child;) {
    std::ifstream file("/proc/" + std::to_string(child) + "/cmdline");
    std::string line;
    std::getline(file, line);
    if (line.find("--job=" + job) != std::string::npos &&
        line.find("--task=" + std::to_string(task)) != std::string::npos)
      return child;
  }
  return -1;
}

TEST(Recovery, ALaunchedJobGoesOnAfterEachOfItsDaemonsWasKilled) {
  const TemporaryFolder dir;
  for (const std::string way : {"--replication=in_graph", "--replication=between_graph"}) {
    ChildProcess launch({MonographPath(), "launch", "--ps=1", "--workers=2", "--", MG_MNIST_REPLICA,
                         way, "--data_name=synthetic", "--fc=16", "--batch_size=20",
                         "--num_warmup_batches=0", "--display_every=5", kForever, "--save_steps=5",
                         "--train_dir=" + dir.File(way.substr(14))});
    const std::string progress = way == "--replication=in_graph" ? "step " : ", Step: ";
    ASSERT_TRUE(launch.WaitForOutput(progress, kLimit)) << launch.error();
    for (const auto& [job, task] : {std::pair("ps", 0), std::pair("worker", 1)}) {
      const pid_t daemon = DaemonOf(launch, job, task);
      ASSERT_GT(daemon, 0) << job << "/" << task;
      kill(daemon, SIGKILL);
      const std::string name = std::string(job) + "/" + std::to_string(task);
      EXPECT_TRUE(launch.WaitForError(
          "daemon " + name + " ended: signal Killed; it is started anew (1 of 3)", kLimit))
          << launch.error();
      EXPECT_TRUE(launch.WaitForMoreOutput(progress, kLimit)) << launch.error();
    }
    const std::string said = launch.output() + launch.error();
    EXPECT_NE(said.find("Restoring parameters from "), std::string::npos) << said;
  }
}

TEST(Recovery, WithoutATrainDirTheLossEndsTheJobAndSaysWhatWouldHelp) {
  Job job({"in_graph", {"--replication=in_graph"}, 1, 1, "step "});
  ASSERT_TRUE(job.Trains()) << job.Said();
  job.cluster.daemon("ps", 0).Signal(SIGKILL);
  ExpectFails(job.client(0), {"UNAVAILABLE", "/job:ps/replica:0/task:0",
                              "(with --train_dir the run would go on by itself)"});
}

}  // namespace
}  // namespace monograph
