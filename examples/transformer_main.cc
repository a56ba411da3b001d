// transformer: trains an encoder to tell tokens that are hidden, replicated in one graph or in a
// graph per worker. Sequences are made up, and new in every step: what it learns is to look at the
// place where the hidden token stands once more.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "examples/models/transformer.h"
#include "examples/replicas/replicas.h"
#include "tools/flags.h"
#include "train/optimizer.h"
#include "train/trainer.h"

namespace monograph::examples {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings : ReplicaFlags {
  Transformer model;
  std::string dtype = "float", attention = "auto", optimizer = "adam";
  int64_t batch_size = 32, seed = 1;
  int num_batches = 300, num_warmup_batches = 0, display_every = 50;
  double learning_rate = 0.002, momentum = 0.9;

  void AddTo(Flags* flags);
  Optimizer MakeOptimizer() const;
  // Training loops of all clients, each of which makes updates of its own, and of this one.
  int Loops(const Layout& layout) const { return in_graph() ? LoopsHere(layout) : layout.workers; }
  int LoopsHere(const Layout& layout) const {
    return in_graph() && async ? static_cast<int>(layout.replicas.size()) : 1;
  }

 private:
  Status Check();
};

void Settings::AddTo(Flags* flags) {
  flags->Section("Training");
  flags->Add("layers", &model.layers, "of the encoder", 1, 1000);
  flags->Add("heads", &model.heads, "of attention", 1, Flags::kMostUnits);
  flags->Add("width", &model.width, "numbers of a token between layers, a multiple of --heads", 1,
             Flags::kMostUnits);
  flags->Add("inner", &model.inner, "units of the dense part of a layer", 1, Flags::kMostUnits);
  flags->Add("length", &model.length, "tokens of the longest sequence; an eighth is hidden", 2,
             Flags::kMostUnits);
  flags->Add("min_length", &model.min_length,
             "tokens of the shortest sequence: lengths are random, and attention looks at no "
             "padding. 0: all are of --length",
             0, Flags::kMostUnits);
  flags->Add("vocabulary", &model.vocabulary, "tokens that there are", 3, Flags::kMostUnits);
  flags->AddChoice("dtype", &dtype, {"float", "bfloat16"},
                   "of products and attention; variables, norms, updates and the loss are float");
  flags->AddChoice(
      "attention", &attention, {"auto", "fused", "ops"},
      "fused: one op, which holds no weights of all pairs of tokens; ops: products and "
      "softmax; auto: fused with --dtype=bfloat16");
  flags->Add("batch_size", &batch_size, "sequences of one update on each device", 1,
             Flags::kMostExamples);
  flags->Add("num_batches", &num_batches, "updates that are timed, of all clients", 1);
  flags->Add("num_warmup_batches", &num_warmup_batches, "updates before those, not timed", 0);
  flags->Add("display_every", &display_every, "updates between lines", 1);
  flags->AddChoice("optimizer", &optimizer, {"adam", "momentum", "sgd"},
                   "how gradients change the variables");
  flags->Add("learning_rate", &learning_rate, "it stays as it is");
  flags->Add("momentum", &momentum, "of --optimizer=momentum");
  flags->Add("seed", &seed, "of weights and sequences");
  flags->Section("Replication");
  AddReplicasTo(flags);
  flags->Add("async", &async, "in_graph: every replica trains at its own pace");
  flags->Add("sync", &sync,
             "between_graph with parameter servers: all workers make one update together");
  flags->Add("num_gpus", &num_gpus,
             "GPUs of each worker, or of this process without a cluster. in_graph: a replica on "
             "each; else replica i is on GPU i % N. 0: workers compute on a GPU if they have one",
             0, kMostReplicas);
  session.AddTo(flags);
  flags->AddCheck([this] { return Check(); });
}

Status Settings::Check() {
  if (!(learning_rate > 0)) return InvalidArgument("--learning_rate must be greater than 0");
  if (!(momentum >= 0 && momentum < 1)) return InvalidArgument("--momentum must be in [0, 1)");
  if (model.width % model.heads != 0) {
    return InvalidArgument("--width=" + std::to_string(model.width) +
                           " is no multiple of --heads=" + std::to_string(model.heads));
  }
  if (model.length % 2 != 0) {
    return InvalidArgument("--length=" + std::to_string(model.length) +
                           " is odd: the second half of a sequence is the first once more");
  }
  if (model.min_length % 2 != 0 || model.min_length > model.length) {
    return InvalidArgument("--min_length=" + std::to_string(model.min_length) +
                           " is not even and at most --length=" + std::to_string(model.length));
  }
  model.compute = dtype == "bfloat16" ? DT_BFLOAT16 : DT_FLOAT;
  model.fused_attention = attention == "fused" || (attention == "auto" && dtype == "bfloat16");
  MG_RETURN_IF_ERROR(CheckReplicas());
  return FindPlace(*this).status();
}

Optimizer Settings::MakeOptimizer() const {
  if (optimizer == "momentum") return Momentum(learning_rate, momentum);
  if (optimizer == "sgd") return GradientDescent(learning_rate);
  return Adam(learning_rate);
}

// One client's run.
class Run {
 public:
  Run(const Settings& settings, const std::optional<ClusterSpec>& cluster, const Layout& layout)
      : settings_(settings), cluster_(cluster), layout_(layout) {}

  Status Train();

 private:
  Result<ReplicatedStep> Build(const Scope& root, std::vector<Outputs>* feeds) const;
  void Show(const TrainedStep& step);
  // Sequences of an update of one loop.
  int64_t RowsOfLoop() const {
    const auto replicas = static_cast<int64_t>(layout_.replicas.size());
    return settings_.batch_size * (settings_.LoopsHere(layout_) > 1 ? 1 : replicas);
  }
  // Sequences of an update, whoever makes it.
  int64_t RowsOfUpdate() const {
    return RowsOfLoop() * (settings_.asynchronous() ? 1 : layout_.workers);
  }

  const Settings& settings_;
  const std::optional<ClusterSpec>& cluster_;
  const Layout& layout_;
  int64_t shown_ = 0;
  Clock::time_point shown_at_;
};

Result<ReplicatedStep> Run::Build(const Scope& root, std::vector<Outputs>* feeds) const {
  const Transformer& model = settings_.model;
  ReplicateOptions options = OptionsOf(settings_, layout_);
  if (!settings_.in_graph() && !options.async) options.global_batch_size = RowsOfUpdate();
  const Scope client = root.WithDevice(layout_.client);
  for (int loop = 0; loop < settings_.LoopsHere(layout_); ++loop)
    feeds->push_back(MaskedPlaceholders(client, model, RowsOfLoop()));
  if (feeds->size() > 1) {
    return ReplicateShards(root, layout_.replicas, *feeds, model.Training(),
                           settings_.MakeOptimizer(), options);
  }
  return Replicate(root, layout_.replicas, feeds->front(), model.Training(),
                   settings_.MakeOptimizer(), options);
}

// The last line speaks for all updates since the one before.
void Run::Show(const TrainedStep& step) {
  const int64_t number = step.global_step - settings_.num_warmup_batches;
  if (number / settings_.display_every <= shown_ / settings_.display_every) return;
  const double seconds = std::chrono::duration<double>(step.end - shown_at_).count();
  const auto rows = static_cast<double>((number - shown_) * RowsOfUpdate());
  shown_ = number;
  shown_at_ = step.end;
  if (!settings_.asynchronous() && layout_.rank != 0) return;  // the chief speaks for all
  std::printf("step %lld  loss %.3f  accuracy %.3f  sequences/sec %.1f\n",
              static_cast<long long>(number), step.results[0].scalar<float>(),
              step.results[1].scalar<float>(), rows / seconds);
  std::fflush(stdout);
}

Status Run::Train() {
  Graph graph = NewGraph();
  std::vector<Outputs> feeds;
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      Build(Scope(&graph).WithSeed(settings_.seed), &feeds));
  const SessionFlags flags = SessionOf(settings_, layout_);
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      flags.Open(cluster_, graph, static_cast<int>(layout_.replicas.size())));
  const auto loops = static_cast<uint64_t>(settings_.Loops(layout_));
  const auto feed = [&](int loop, int64_t batch) {
    const uint64_t own = static_cast<uint64_t>(batch) * loops +
                         static_cast<uint64_t>(layout_.rank) + static_cast<uint64_t>(loop);
    return MaskedSequences(settings_.model, RowsOfLoop(),
                           static_cast<uint64_t>(settings_.seed) << 40 ^ own);
  };
  Trainer trainer(session.get(), step, feeds, feed, {.start_timeout = flags.options.start_timeout});
  MG_RETURN_IF_ERROR(trainer.Start());
  MG_RETURN_IF_ERROR(trainer.Train(settings_.num_warmup_batches));
  const int64_t first = trainer.global_step();
  const Clock::time_point begin = shown_at_ = Clock::now();
  MG_RETURN_IF_ERROR(trainer.Train(settings_.num_warmup_batches + settings_.num_batches,
                                   [this](const TrainedStep& done) { Show(done); }));
  if (layout_.rank == 0) {
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto rows = static_cast<double>((trainer.global_step() - first) * RowsOfUpdate());
    std::printf("total sequences/sec: %.2f\ntotal tokens/sec: %.1f\n", rows / seconds,
                rows * static_cast<double>(settings_.model.length) / seconds);
    std::fflush(stdout);
  }
  return session->Close();
}

int Main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "transformer",
      "Trains a Transformer encoder to tell tokens that are hidden, on made-up sequences.\n\n"
      "Examples:\n"
      "  transformer                                               in this process\n"
      "  transformer --num_gpus=1 --dtype=bfloat16 --layers=12 --heads=12 --width=768\n"
      "      --inner=3072 --length=512 --vocabulary=30522 --batch_size=16    BERT's base size\n"
      "  monograph launch --ps=1 --workers=2 -- transformer        one graph over two daemons\n"
      "  monograph launch --workers=2 -- transformer --replication=between_graph\n"
      "      --variable_update=replicated\n");
  settings.AddTo(&flags);
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  const auto train = [&](const std::optional<ClusterSpec>& cluster, const Layout& layout) {
    return Run(settings, cluster, layout).Train();
  };
  return flags.Exit(RunReplicas(settings, train));
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) { return monograph::examples::Main(argc, argv); }
