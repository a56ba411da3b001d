// The training of mnist_replica (its CNN with fc 1024 and without dropout, Adam, made images; in
// float, and all-reduced in bfloat16, too) on two workers with a core each, against other systems
// that do the same: TensorFlow in the same mode, and torch's DistributedDataParallel over gloo
// against our all-reduced replicas. And TensorFlow's program in each mode, run on ours by python -m
// monograph.tensorflow, against itself on TensorFlow and against mnist_replica.
//
// On both sides worker k is pinned to core k, and so is its client where each worker has one; a
// parameter server, and the one client of a graph for all, are not pinned. Clients feed batches
// that were made before. A repetition trains on so many images; images per second are the sum over
// the clients.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/daemons.h"
#include "bench/harness.h"
#include "client/session.h"
#include "examples/mnist_replica/program.h"
#include "examples/mnist_replica/settings.h"
#include "train/trainer.h"

namespace monograph::bench {
namespace {

using examples::Settings;

constexpr int kWorkers = 2;
constexpr int64_t kImages = 4000;  // of a repetition
constexpr int64_t kKeptBatches = 8;

struct Mode {
  std::string name;  // also the peer's name of it
  std::string replication, variable_update;
  bool sync = false;
  bool torch = false;     // its peer; else TensorFlow
  bool bfloat16 = false;  // between the layers and between the workers
  double goal_200, goal_100;

  bool between_graph() const { return replication == "between_graph"; }
  bool async() const { return between_graph() && variable_update == "parameter_server" && !sync; }
  int ps() const { return variable_update == "parameter_server" ? 1 : 0; }
};

Settings SettingsOf(const Mode& mode, int64_t batch, int rank) {
  Settings settings;
  settings.replication = mode.replication;
  settings.variable_update = mode.variable_update;
  settings.sync = mode.sync;
  settings.task_index = rank;
  settings.batch_size = mode.async() ? batch / kWorkers : batch;
  if (mode.bfloat16) settings.dtype = settings.gradient_dtype = "bfloat16";
  settings.model.fc = 1024;
  settings.model.dropout = 0;
  settings.data_name = "synthetic";
  settings.session.options.inter_op_parallelism_threads = 1;
  settings.session.options.intra_op_parallelism_threads = 1;
  if (mode.async() || mode.sync)
    settings.session.options.device_filters = {"/job:ps",
                                               "/job:worker/task:" + std::to_string(rank)};
  return settings;
}

// One client. A line is a number of updates, of all clients together since the start, to go to; the
// answer is its own images per second and the number that it has reached. "end" ends it.
void ServeClient(const Settings& settings, const ClusterSpec& cluster, Child::Channel& parent) {
  const examples::Layout layout =
      Check(examples::MakeLayout(settings, cluster, settings.task_index.value_or(0)));
  const std::shared_ptr<const Dataset> test =
      Check(LoadDataset({.name = settings.data_name, .split = "test"}));
  const auto data = Check(examples::TrainingData::Load(settings, layout, *test));
  std::vector<std::vector<Tensor>> batches;
  for (int64_t k = 0; k < kKeptBatches; ++k) batches.push_back(Check(data->Feeds(0, k)));
  const auto program = Check(examples::BuildProgram(settings, layout, test->pixels(), {}));
  const std::unique_ptr<Session> session = Check(settings.session.Open(cluster, program->graph));
  Trainer trainer(session.get(), program->step, program->feeds,
                  [&](int, int64_t batch) -> Result<std::vector<Tensor>> {
                    return batches[static_cast<size_t>(batch % kKeptBatches)];
                  });
  Check(trainer.Start());
  parent.WriteLine("ready");
  const int64_t rows = examples::RowsOfStep(settings, layout);
  for (std::string line = parent.ReadLine(); line != "end"; line = parent.ReadLine()) {
    int64_t images = 0;
    const double start = Now();
    Check(trainer.Train(std::stoll(line), [&](const TrainedStep&) { images += rows; }));
    const double rate = static_cast<double>(images) / (Now() - start);
    parent.WriteLine(std::to_string(rate) + " " + std::to_string(trainer.global_step()));
  }
}

// Daemons, and the clients that train on them. REQUIRES: this process has no other threads yet.
class Training {
 public:
  Training(const Mode& mode, int64_t batch)
      : updates_(kImages / batch * (mode.async() ? kWorkers : 1)), daemons_(kWorkers, mode.ps()) {
    daemons_.Start({"--inter_op_parallelism_threads=1", "--intra_op_parallelism_threads=1"},
                   /*pinned=*/true);
    for (int rank = 0; rank < (mode.between_graph() ? kWorkers : 1); ++rank) {
      clients_.push_back(Child::Fork(
          [&, rank](Child::Channel& parent) {
            ServeClient(SettingsOf(mode, batch, rank), daemons_.cluster(), parent);
          },
          mode.between_graph() ? rank : -1));
    }
    for (const auto& client : clients_) Hear(client.get());
  }
  ~Training() {
    // The latest first: it was forked with the pipes of those before.
    for (; !clients_.empty(); clients_.pop_back()) clients_.back()->Tell("end");
  }
  Training(const Training&) = delete;

  // Images per second of a repetition.
  double Run() {
    const std::string until = std::to_string(reached_ + updates_);
    for (const auto& client : clients_) client->Tell(until);
    double sum = 0;
    for (const auto& client : clients_) {
      std::istringstream answer(Hear(client.get()));
      double rate = 0;
      int64_t reached = 0;
      answer >> rate >> reached;
      sum += rate;
      reached_ = std::max(reached_, reached);
    }
    return sum;
  }

 private:
  static std::string Hear(Child* client) {
    const std::optional<std::string> line = client->Hear();
    if (!line) Die("a client has ended");
    return *line;
  }

  const int64_t updates_;  // of a repetition
  Daemons daemons_;
  std::vector<std::unique_ptr<Child>> clients_;
  int64_t reached_ = 0;
};

void CompareMode(const Args& args, Report* report, const Mode& mode, int64_t batch) {
  const std::string name = mode.name + ", batch " + std::to_string(batch);
  if (!args.Wants(name)) return;
  const std::string system = mode.torch ? "torch" : "TensorFlow";
  const std::string model = mode.name + " model, batch " + std::to_string(batch);
  std::vector<std::string> arguments{"--images=" + std::to_string(kImages), "--case=" + name};
  if (mode.bfloat16) arguments.push_back("--case=" + model);
  const auto peer = Peer::Start(mode.torch ? args.torch : args.tensorflow,
                                mode.torch ? "torch_ddp.py" : "tf_training.py", arguments);
  if (!peer) {
    std::fprintf(stderr, "training, %s: left out, since there is no %s to compare with\n",
                 name.c_str(), system.c_str());
    return;
  }
  if (!peer->WaitReady()) return;
  Training training(mode, batch);
  std::vector<Side> references{peer->AsSide(mode.torch ? "torch DDP over gloo" : system, name, 1)};
  std::unique_ptr<Training> in_float;
  if (mode.bfloat16) {
    references.push_back(peer->AsSide("torch DDP, bfloat16 model", model, 1));
    references.back().goal = Goal{batch == 200 ? mode.goal_200 : mode.goal_100, Goal::kMin};
    Mode wide = mode;
    wide.bfloat16 = false;
    in_float = std::make_unique<Training>(wide, batch);
    references.push_back(Side::Of("ours in float", [&] { return in_float->Run(); }));
    references.back().goal = Goal{1.5, Goal::kMin};
  }
  const double goal = batch == 200 ? mode.goal_200 : mode.goal_100;
  report->Compare("training", "images/s", {{name, Goal{goal, Goal::kMin}}},
                  Side::Of("ours", [&] { return training.Run(); }), references,
                  args.Repetitions(5));
}

// TensorFlow's program, in a mode that it has.
void CompareProgram(const Args& args, Report* report, const Mode& mode, int64_t batch) {
  const std::string peers_name = mode.name + ", batch " + std::to_string(batch);
  const std::string name = "TensorFlow's program, " + peers_name;
  if (mode.torch || !args.Wants(name)) return;
  const std::vector<std::string> arguments = {"--images=" + std::to_string(kImages),
                                              "--case=" + peers_name};
  const auto on_ours = Peer::Start(args.tensorflow, "tf_training.py", arguments, true);
  const auto on_theirs = Peer::Start(args.tensorflow, "tf_training.py", arguments);
  if (!on_ours || !on_ours->WaitReady() || !on_theirs->WaitReady()) {
    std::fprintf(stderr, "training, %s: left out\n", name.c_str());
    return;
  }
  Training training(mode, batch);
  Side own_graph = Side::Of("mnist_replica", [&] { return training.Run(); });
  own_graph.goal = Goal{0.95, Goal::kMin};
  report->Compare("training", "images/s", {{name, Goal{1.25, Goal::kMin}}},
                  on_ours->AsSide("ours", peers_name, 1),
                  {on_theirs->AsSide("TensorFlow", peers_name, 1), own_graph}, args.Repetitions(5));
}

int Main(int argc, char** argv) {
  const Args args = Args::Parse(argc, argv,
                                "training_bench: mnist_replica's training on two workers with a "
                                "core each, in six modes, against TensorFlow and torch");
  SetLogLevel(LogLevel::kWarning);
  const std::vector<Mode> modes = {{.name = "in-graph, variables on a worker",
                                    .replication = "in_graph",
                                    .variable_update = "central",
                                    .goal_200 = 1.2,
                                    .goal_100 = 1.3},
                                   {.name = "in-graph, ps",
                                    .replication = "in_graph",
                                    .variable_update = "parameter_server",
                                    .goal_200 = 1.3,
                                    .goal_100 = 1.3},
                                   {.name = "between-graph async, ps",
                                    .replication = "between_graph",
                                    .variable_update = "parameter_server",
                                    .goal_200 = 1.3,
                                    .goal_100 = 1.3},
                                   {.name = "between-graph sync, ps",
                                    .replication = "between_graph",
                                    .variable_update = "parameter_server",
                                    .sync = true,
                                    .goal_200 = 1.3,
                                    .goal_100 = 1.3},
                                   {.name = "between-graph, all-reduced",
                                    .replication = "between_graph",
                                    .variable_update = "replicated",
                                    .torch = true,
                                    .goal_200 = 1.5,
                                    .goal_100 = 1.5}};
  Report report(args);
  for (const Mode& mode : modes) {
    for (const int64_t batch : {200, 100}) CompareMode(args, &report, mode, batch);
  }
  for (const Mode& mode : modes) {
    for (const int64_t batch : {200, 100}) CompareProgram(args, &report, mode, batch);
  }
  return 0;
}

}  // namespace
}  // namespace monograph::bench

int main(int argc, char** argv) { return monograph::bench::Main(argc, argv); }
