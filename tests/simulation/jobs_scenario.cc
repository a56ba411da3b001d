// A job with checkpoints, of each way of replication that keeps in step, or with replicas that each
// go at their own pace: while it trains, links are cut and slowed, tasks and clients are killed or
// lose their machines, disks are full, and all of it is mended. It has to end by itself with the
// weights of a job that lost nothing, and so has its last checkpoint, also where the power fails
// right afterwards.
//
// The model's only weight begins at 0, and batch b takes 2^b from it: its bits tell which batches
// it has seen how often. Of replicas at their own pace each takes 4^f for a field f of its own;
// what is lost with the ps is lost, but nothing is taken twice.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "client/registries.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/draw.h"
#include "tests/simulation/host.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/scenarios.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/sim_disk.h"
#include "train/monitored_training_session.h"
#include "train/strategy.h"

namespace monograph::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kReplicas = 2;
constexpr int64_t kTrainedSteps = 8, kSaveSteps = 3;
constexpr float kTrained = 1 - (1 << kTrainedSteps);

// Of the weight, the step and what says where they are.
constexpr int64_t kOfVariables = 1024;

// At their own pace. In floats all values are exact.
constexpr int kFields = 10, kMostTold = 3;

enum class Way { kInGraph, kMirrored, kSync, kMultiWorker, kOwnPace };
constexpr Way kWays[] = {Way::kInGraph, Way::kMirrored, Way::kSync, Way::kMultiWorker,
                         Way::kOwnPace};

Strategy StrategyOf(Way way, const ClusterSpec& cluster, int rank) {
  switch (way) {
    case Way::kInGraph:
      return {.devices = cluster.Tasks("worker"),
              .options = {.variable_devices = cluster.Tasks("ps")}};
    case Way::kMirrored:
      return MirroredStrategy(cluster.Tasks("worker"));
    case Way::kOwnPace:
      return ParameterServerStrategy(cluster, rank).value();
    case Way::kSync: {
      Strategy strategy = ParameterServerStrategy(cluster, rank).value();
      strategy.options.async = false;
      return strategy;
    }
    case Way::kMultiWorker:
      return MultiWorkerMirroredStrategy(cluster, rank).value();
  }
  return {};
}

class TrainingJob {
 public:
  TrainingJob()
      : way_(kWays[Draw(std::size(kWays))]),
        cluster_(kReplicas),
        disk_(&cluster_.network()),
        clients_(way_ == Way::kInGraph || way_ == Way::kMirrored ? 1 : kReplicas) {
    cluster_.Keeps(kOfVariables);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    hosts_ = {0, cluster_.network().AddHost("client-1")};
    disk_.Mount(folder_, hosts_[0]);
    if (Draw(4) == 0) disk_.SetSyncTime(hosts_[0], milliseconds(Draw(3000)));
  }

  void Run();

 private:
  // A client's process, from its start to its end; the failure with which it ended.
  Status Train(int rank);
  // A client that is started again until it has ended well.
  void Client(int rank);
  void MakeTrouble();
  void CheckCheckpoint(const char* when);
  void CheckOwnPace(const char* when, float w, int64_t step);
  std::string dir() const { return folder_ + "/run"; }

  // What a replica's batch takes from the weight.
  float NumberOf(int rank, int64_t batch);
  // Links as they were.
  void Repair();

  const Way way_;
  const std::string folder_ = ScratchFolder() + "/job";
  DisturbedCluster cluster_;
  SimDisk disk_;
  const int clients_;
  std::vector<int> hosts_;  // of the clients
  Mutex mutex_;
  CondVar changed_;
  // A client whose machine was taken is over before the machine comes back.
  int taken_ MG_GUARDED_BY(mutex_) = -1;
  bool over_ MG_GUARDED_BY(mutex_) = false;
  int begun_again_ MG_GUARDED_BY(mutex_) = 0;
  int tried_[kFields] MG_GUARDED_BY(mutex_) = {};
  bool was_full_ MG_GUARDED_BY(mutex_) = false;   // the disk of the checkpoints
  bool was_taken_ MG_GUARDED_BY(mutex_) = false;  // some machine
  bool finished_[kReplicas] MG_GUARDED_BY(mutex_) = {};
};

float TrainingJob::NumberOf(int rank, int64_t batch) {
  if (way_ != Way::kOwnPace) return static_cast<float>(int64_t{1} << batch);
  const auto field = static_cast<size_t>((kReplicas * batch + rank) % kFields);
  MutexLock lock(mutex_);
  ++tried_[field];
  return static_cast<float>(int64_t{1} << (2 * field));
}

Status TrainingJob::Train(int rank) {
  const Strategy strategy = StrategyOf(way_, cluster_.spec(), rank);
  Graph graph = NewGraph();
  const Scope root(&graph);
  const Scope here = root.WithDevice("/job:client/task:0");
  const Outputs feeds = {Placeholder(here, DT_FLOAT, {kReplicas / clients_})};
  const auto model = [](Scope& tower, std::span<const Output> batch,
                        ModelVariables& variables) -> Result<Outputs> {
    return Outputs{
        ReduceMean(tower, Mul(tower, variables.Get("w", Shape{}, Initial::Zeros()), batch[0]))};
  };
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      strategy.Replicate(root, feeds, model, GradientDescent(1)));
  MonitoredTrainingOptions options{.checkpoint_dir = dir(),
                                   .saver = std::make_shared<Saver>(root),
                                   .save_checkpoint = {.steps = kSaveSteps}};
  options.trainer.start_timeout = seconds(60);
  options.trainer.say = [rank](const std::string& text) {
    Note("client " + std::to_string(rank) + ": " + text);
  };
  MG_RETURN_IF_ERROR(root.status());
  MonitoredTrainingSession training(
      [&](milliseconds start_timeout) -> Result<std::unique_ptr<Session>> {
        if (!cluster_.network().IsUp(CurrentHost()))
          return FailedPrecondition("this machine is gone");
        SessionOptions session;
        session.key = cluster_.key();
        session.inter_op_parallelism_threads = 2;
        session.device_filters = strategy.device_filters;
        // On a machine that is gone this ends long before the other client has waited enough.
        session.start_timeout = std::min<milliseconds>(start_timeout, seconds(20));
        return Session::Connect(cluster_.spec(), graph, session);
      },
      step, {feeds},
      [&](int, int64_t batch) -> Result<std::vector<Tensor>> {
        const float number = NumberOf(rank, batch);
        const auto rows = static_cast<size_t>(kReplicas / clients_);
        return std::vector<Tensor>{
            Tensor::FromValues<float>({kReplicas / clients_}, std::vector<float>(rows, number))};
      },
      std::move(options));
  MG_RETURN_IF_ERROR(training.Start());
  MG_RETURN_IF_ERROR(training.Train(kTrainedSteps, [&](const TrainedStep& made) {
    if (way_ != Way::kOwnPace &&
        (made.global_step > kTrainedSteps || made.batch + 1 != made.global_step)) {
      Fail("client " + std::to_string(rank) + " made batch " + std::to_string(made.batch) +
           " into global step " + std::to_string(made.global_step));
    }
  }));
  // Another client may have made the last step, and lost only this one's answer.
  if (const int64_t last = training.trainer()->global_step();
      way_ != Way::kOwnPace && last != kTrainedSteps)
    Fail("client " + std::to_string(rank) + " ended at step " + std::to_string(last));
  return training.Close();
}

void TrainingJob::Client(int rank) {
  const int host = hosts_[static_cast<size_t>(rank)];
  const OnHost here(host);
  while (true) {
    const Status status = Train(rank);
    Note("client " + std::to_string(rank) + " ended: " + status.ToString());
    MutexLock lock(mutex_);
    over_ = over_ || taken_ == rank;
    changed_.NotifyAll();
    finished_[static_cast<size_t>(rank)] = status.ok();
    if (status.ok()) {
      // As the others cannot end without it, it begins again with one that does, or when they do
      // not end.
      const int seen = begun_again_;
      const bool told = changed_.WaitFor(mutex_, seconds(30), [this, seen]() MG_REQUIRES(mutex_) {
        return begun_again_ != seen ||
               std::count(finished_, finished_ + clients_, true) == clients_;
      });
      if (told && begun_again_ == seen) return;
      // Whose replicas are all-reduced leave together, unless a machine or a checkpoint was lost.
      if (!told && way_ == Way::kMultiWorker && !was_full_ && !was_taken_)
        Fail("client " + std::to_string(rank) + " has ended, and the others do not");
      finished_[static_cast<size_t>(rank)] = false;
      continue;
    }
    if (was_full_ && status.code() == Code::kResourceExhausted) {
      // Its last checkpoint found no room. Its user makes some, and the job begins again.
      disk_.SetRoom(hosts_[0], -1);
      ++begun_again_;
      changed_.NotifyAll();
      continue;
    }
    if (taken_ != rank) {
      Fail("client " + std::to_string(rank) +
           ", whose machine is well, ended: " + status.ToString());
    }
    // Its machine is taken; another process begins when it is back.
    changed_.Wait(mutex_, [this]() MG_REQUIRES(mutex_) { return taken_ < 0; });
  }
}

void TrainingJob::Repair() {
  cluster_.Repair();
  for (int task = 0; task < cluster_.tasks(); ++task) {
    cluster_.network().SetLink(hosts_[1], cluster_.host(task), {});
    cluster_.network().SetLink(cluster_.host(task), hosts_[1], {});
  }
  disk_.SetRoom(hosts_[0], -1);
}

void TrainingJob::MakeTrouble() {
  Network& network = cluster_.network();
  const uint64_t times = 1 + Draw(2);
  for (uint64_t i = 0; i < times; ++i) {
    std::this_thread::sleep_for(microseconds(Draw(uint64_t{1} << (10 + Draw(13)))));
    const auto a = static_cast<int>(Draw(3)), b = static_cast<int>(Draw(2));
    const int task = static_cast<int>(Draw(static_cast<uint64_t>(cluster_.tasks())));
    const int client = static_cast<int>(Draw(static_cast<uint64_t>(clients_)));
    const int one = a < clients_ ? hosts_[static_cast<size_t>(a)] : cluster_.host(b);
    const uint64_t kind = Draw(9);
    bool taken = false;
    switch (kind) {
      case 0:
        Note("cut off: " + cluster_.device(task));
        network.Isolate(cluster_.host(task));
        break;
      case 1:
        Note("cut between " + std::to_string(one) + " and " + cluster_.device(task));
        network.Cut(one, cluster_.host(task));
        break;
      case 2:
        Note("cut one way from " + cluster_.device(task) + " to " + std::to_string(one));
        network.CutOneWay(cluster_.host(task), one);
        break;
      case 3:
        Note("connections broken between " + std::to_string(one) + " and " + cluster_.device(task));
        network.Break(one, cluster_.host(task));
        break;
      case 4:
      case 5:
        Note((kind == 4 ? "killed: " : "crashed: ") + cluster_.device(task));
        cluster_.Kill(task, kind == 4);
        break;
      case 6:
        Note("slow between " + std::to_string(one) + " and " + cluster_.device(task));
        network.SetLink(one, cluster_.host(task), {.delay = milliseconds(Draw(1000))});
        network.SetLink(cluster_.host(task), one, {.delay = milliseconds(Draw(1000))});
        break;
      case 7: {
        Note("the disk is full");
        {
          MutexLock lock(mutex_);
          was_full_ = true;
        }
        disk_.SetRoom(hosts_[0], static_cast<int64_t>(Draw(600)));
        break;
      }
      default: {
        const int host = hosts_[static_cast<size_t>(client)];
        Note("client " + std::to_string(client) + " loses its machine");
        {
          MutexLock lock(mutex_);
          taken_ = client;
          was_taken_ = true;
          over_ = finished_[static_cast<size_t>(client)];
        }
        taken = true;
        Draw(2) == 0 ? network.Kill(host) : network.Crash(host);
      }
    }
    std::this_thread::sleep_for(milliseconds(Draw(uint64_t{1} << Draw(13))));
    Repair();
    if (!taken) continue;
    MutexLock lock(mutex_);
    if (changed_.WaitFor(mutex_, seconds(400), [this]() MG_REQUIRES(mutex_) { return over_; })) {
      lock.Unlock();
      if (client == 0) disk_.LosePower(hosts_[0]);
      network.Restart(hosts_[static_cast<size_t>(client)]);
      lock.Lock();
    } else {
      Fail("a client whose machine is gone does not end");
    }
    taken_ = -1;
    if (!finished_[static_cast<size_t>(client)]) ++begun_again_;
    changed_.NotifyAll();
  }
}

void TrainingJob::CheckOwnPace(const char* when, float w, int64_t step) {
  if (step < kTrainedSteps)
    Fail(std::string(when) + " the last checkpoint is of step " + std::to_string(step));
  MutexLock lock(mutex_);
  for (size_t field = 0; field < kFields; ++field) {
    if (tried_[field] > kMostTold) return;  // more would show in the next field
    const auto seen = (static_cast<int64_t>(-w) >> (2 * field)) & kMostTold;
    if (seen <= tried_[field]) continue;
    Fail(std::string(when) + " batch " + std::to_string(field) + " is in the weight " +
         std::to_string(seen) + " times and was fed " + std::to_string(tried_[field]) + " times");
  }
}

void TrainingJob::CheckCheckpoint(const char* when) {
  const auto latest = LatestCheckpoint(dir());
  if (!latest.ok() || !*latest)
    Fail(std::string(when) + " there is no checkpoint: " + latest.status().ToString());
  const auto w = LoadVariable(**latest, "w");
  const auto step = LoadVariable(**latest, "global_step");
  if (!w.ok() || !step.ok())
    Fail(std::string(when) + " the last checkpoint cannot be read: " + w.status().ToString());
  if (way_ == Way::kOwnPace) return CheckOwnPace(when, w->scalar<float>(), step->scalar<int64_t>());
  if (w->scalar<float>() != kTrained || step->scalar<int64_t>() != kTrainedSteps) {
    Fail(std::string(when) + " the last checkpoint has w = " + std::to_string(w->scalar<float>()) +
         " at step " + std::to_string(step->scalar<int64_t>()) + ", not " +
         std::to_string(kTrained) + " at step " + std::to_string(kTrainedSteps));
  }
}

void TrainingJob::Run() {
  std::vector<std::thread> clients;
  for (int rank = 0; rank < clients_; ++rank)
    clients.push_back(
        StartThread("client-" + std::to_string(rank), [this, rank] { Client(rank); }));
  std::thread trouble;
  if (Draw(8) != 0) trouble = StartThread("trouble", [this] { MakeTrouble(); });
  for (std::thread& client : clients) client.join();
  if (trouble.joinable()) trouble.join();
  CheckCheckpoint("at the end");
  cluster_.network().Crash(hosts_[0]);
  disk_.LosePower(hosts_[0]);
  CheckCheckpoint("after the power has failed");
}

}  // namespace

void RunJobs() { TrainingJob().Run(); }

}  // namespace monograph::simulation
