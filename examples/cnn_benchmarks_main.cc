// cnn_benchmarks: how many images per second a convolutional network trains, or only computes
// forward, with the flags and the lines of tf_cnn_benchmarks. One client with one graph for all
// workers, or a client per worker.
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/registries.h"
#include "client/session.h"
#include "examples/cnn_benchmarks/images.h"
#include "examples/cnn_benchmarks/settings.h"
#include "examples/cnn_benchmarks/speed.h"
#include "tools/flags.h"
#include "train/hooks.h"
#include "train/saver.h"
#include "train/summary_writer.h"
#include "train/trainer.h"

namespace monograph::examples {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

void PrintHeader(const CnnSettings& settings, const Layout& layout) {
  constexpr double kImagesOfImagenet = 1281167;
  const auto line = [](const char* name, const std::string& value) {
    std::printf("%-13s%s\n", name, value.c_str());
  };
  const int64_t global = settings.batch_size * layout.replicas_of_all();
  char epochs[32];
  std::snprintf(epochs, sizeof epochs, "%.2f",
                static_cast<double>(settings.num_batches * global) / kImagesOfImagenet);
  std::string devices;
  for (const std::string& device : layout.replicas)
    devices += (devices.empty() ? "'" : ", '") + device + "'";
  line("Model:", settings.model);
  line("Dataset:", settings.data_name + (settings.data_dir.empty() ? " (synthetic)" : ""));
  line("Mode:", settings.forward_only ? "forward only" : "training");
  line("SingleSess:", settings.in_graph() ? "True" : "False");
  line("Batch size:", std::to_string(global) + " global");
  line("", std::to_string(settings.batch_size) + " per device");
  line("Num batches:", std::to_string(settings.num_batches));
  line("Num epochs:", epochs);
  line("Devices:", "[" + devices + "]");
  line("Data format:", settings.data_format);
  line("Optimizer:", settings.optimizer);
  line("Variables:", settings.variable_update);
  std::printf("==========\nGenerating training model\n");
  std::fflush(stdout);
}

// What --train_dir asks of the chief. A checkpoint between steps takes time that counts for the
// total; the last one comes after it.
class TrainDir : public TrainHook {
 public:
  // Saves all variables of the graph but those that `images` keep.
  static Result<std::shared_ptr<TrainDir>> Make(const CnnSettings& settings, Graph* graph,
                                                const Images& images) {
    std::vector<ModelVariable> variables;
    for (NodeId node = 0, n = graph->num_nodes(); node < n; ++node) {
      if (!graph->is(node, "VarHandleOp")) continue;
      const Attrs& attrs = graph->attrs(node);
      if (attrs.GetOr<std::string>("container", {}) == images.container()) continue;
      const auto shared = attrs.GetOr<std::string>("shared_name", {});
      variables.push_back({.name = shared.empty() ? std::string(graph->name(node)) : shared,
                           .handle = Output{graph, {node, 0}}});
    }
    const Scope root(graph);
    std::shared_ptr<TrainDir> made(new TrainDir(settings, Saver(root, variables)));
    MG_RETURN_IF_ERROR(root.status());
    return made;
  }

  Status Restore(Session* session) {
    return saver_.RestoreLatest(session, settings_.train_dir, {.say = Say}).status();
  }
  Status AfterStep(HookContext* context) override {
    const int64_t step = context->step.global_step;
    if (!begun_) timer_.Start(step - 1);
    begun_ = true;
    return settings_.save_model_steps > 0 && timer_.Due(step) ? Save(context->session, step)
                                                              : Status();
  }
  Status Save(Session* session, int64_t global_step) {
    MG_ASSIGN_OR_RETURN(const std::string path,
                        saver_.Save(session, settings_.train_dir + "/model.ckpt", global_step));
    Say("Saved " + path);
    return Status();
  }

 private:
  TrainDir(const CnnSettings& settings, Saver saver)
      : settings_(settings),
        saver_(std::move(saver)),
        timer_({.steps = settings.save_model_steps}) {}
  static void Say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

  const CnnSettings& settings_;
  Saver saver_;
  HookTimer timer_;
  bool begun_ = false;
};

// One client's run.
class Run {
 public:
  Run(const CnnSettings& settings, const std::optional<ClusterSpec>& cluster, const Layout& layout)
      : settings_(settings), cluster_(cluster), layout_(layout) {}

  Status Benchmark();

 private:
  Status TrainSteps(Session* session, Trainer* trainer, TrainDir* train_dir);
  Status ForwardSteps(Session* session, const ReplicatedStep& step);
  // Tells of the speed up to here, which is of this client's replicas. `accuracies`: those that
  // are printed.
  void Take(double seconds, float loss, std::span<const Tensor> accuracies);
  void SayWarmedUp() const;
  double images_of_replicas() const {
    return static_cast<double>(settings_.batch_size) * static_cast<double>(layout_.replicas.size());
  }

  const CnnSettings& settings_;
  const std::optional<ClusterSpec>& cluster_;
  const Layout& layout_;
  std::vector<double> seconds_;  // of each timed step
  double images_per_second_ = 0;
};

void Run::Take(double seconds, float loss, std::span<const Tensor> accuracies) {
  seconds_.push_back(seconds);
  const auto number = static_cast<int>(seconds_.size());
  if (number != 1 && number % settings_.display_every != 0) return;
  std::printf("%d\t%s\t%.3f", number, ToString(SpeedOf(seconds_, images_of_replicas())).c_str(),
              loss);
  for (const Tensor& accuracy : accuracies) std::printf("\t%.3f", accuracy.scalar<float>());
  std::printf("\n");
  std::fflush(stdout);
}

void Run::SayWarmedUp() const {
  std::printf("Done warm up\nStep\tImg/sec\ttotal_loss%s\n",
              settings_.prints_accuracy() ? "\ttop_1_accuracy\ttop_5_accuracy" : "");
  std::fflush(stdout);
}

// As there, the loss is not asked for, and said to be 0. The speed is of this client's replicas.
Status Run::ForwardSteps(Session* session, const ReplicatedStep& step) {
  MG_ASSIGN_OR_RETURN(const Callable forward,
                      session->MakeCallable({}, {step.results[1], step.results[2]}));
  for (int batch = 0; batch < settings_.num_warmup_batches; ++batch)
    MG_RETURN_IF_ERROR(session->RunCallable(forward, {}).status());
  SayWarmedUp();
  const Clock::time_point first = Clock::now();
  Clock::time_point begin = first;
  for (int batch = 0; batch < settings_.num_batches; ++batch) {
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> accuracies, session->RunCallable(forward, {}));
    const Clock::time_point end = Clock::now();
    Take(SecondsBetween(std::exchange(begin, end), end), /*loss=*/0, accuracies);
  }
  images_per_second_ = settings_.num_batches * images_of_replicas() / SecondsBetween(first, begin);
  return Status();
}

Status Run::TrainSteps(Session* session, Trainer* trainer, TrainDir* train_dir) {
  const int64_t loops = settings_.Loops(layout_);
  // Batches are counted from the checkpoint.
  const int64_t restored = settings_.train_dir.empty() ? 0 : trainer->global_step();
  MG_RETURN_IF_ERROR(trainer->Train(restored + settings_.num_warmup_batches * loops));
  SayWarmedUp();
  const int64_t first = trainer->global_step();
  const Clock::time_point begin = Clock::now();
  MG_RETURN_IF_ERROR(trainer->Train(
      restored + (settings_.num_warmup_batches + settings_.num_batches) * loops,
      [this](const TrainedStep& step) {
        Take(SecondsBetween(step.begin, step.end), step.results[0].scalar<float>(),
             std::span(step.results).subspan(1, settings_.prints_accuracy() ? 2 : 0));
      }));
  // Updates of all clients.
  images_per_second_ =
      static_cast<double>((trainer->global_step() - first) * settings_.GlobalBatch(layout_)) /
      SecondsBetween(begin, Clock::now());
  return train_dir == nullptr ? Status() : train_dir->Save(session, trainer->global_step());
}

Status Run::Benchmark() {
  PrintHeader(settings_, layout_);
  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(settings_.tf_random_seed);
  const Images images(root, settings_, layout_);
  MG_RETURN_IF_ERROR(root.status());
  ReplicateOptions options = OptionsOf(settings_, layout_);
  if (!settings_.in_graph() && !options.async)
    options.global_batch_size = settings_.GlobalBatch(layout_);
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      ReplicateShards(root, layout_.replicas, images.shards(), settings_.Model(),
                                      settings_.MakeOptimizer(), options));
  TrainerOptions how;
  std::shared_ptr<TrainDir> train_dir;
  if (!settings_.train_dir.empty() && layout_.rank == 0) {
    MG_ASSIGN_OR_RETURN(train_dir, TrainDir::Make(settings_, &graph, images));
    how.init_fn = [train_dir](Session* session) { return train_dir->Restore(session); };
    if (!settings_.forward_only) how.hooks = {train_dir};
    if (settings_.writes_summaries()) {
      MG_ASSIGN_OR_RETURN(std::shared_ptr<SummaryWriter> writer,
                          SummaryWriter::Open(settings_.train_dir));
      how.hooks.push_back(std::make_shared<SummarySaverHook>(
          writer, std::vector<std::string>{"total_loss", "top_1_accuracy"},
          HookEvery{.steps = settings_.save_summaries_steps}));
    }
  }
  std::printf("Initializing graph\n");
  std::fflush(stdout);
  const SessionFlags flags = SessionOf(settings_, layout_);
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      flags.Open(cluster_, graph, static_cast<int>(layout_.replicas.size())));
  how.start_timeout = flags.options.start_timeout;
  Status status;
  {
    Coordinator coordinator;
    MG_RETURN_IF_ERROR(images.Start(session.get(), &coordinator));
    const size_t loops = settings_.async ? layout_.replicas.size() : 1;
    Trainer trainer(
        session.get(), step, std::vector<Outputs>(loops),
        [](int, int64_t) { return Result<std::vector<Tensor>>(std::vector<Tensor>()); }, how);
    status = trainer.Start();
    if (status.ok()) {
      std::printf("Running warm up\n");
      std::fflush(stdout);
      status = settings_.forward_only ? ForwardSteps(session.get(), step)
                                      : TrainSteps(session.get(), &trainer, train_dir.get());
    }
    coordinator.RequestStop();
    // Where images have failed, training has only ended early.
    if (const Status failure = coordinator.Join(); !failure.ok()) return failure;
  }
  MG_RETURN_IF_ERROR(status);
  const std::string rule(64, '-');
  std::printf("%s\ntotal images/sec: %.2f\n%s\n", rule.c_str(), images_per_second_, rule.c_str());
  std::fflush(stdout);
  MG_RETURN_IF_ERROR(images.Stop(session.get()));
  return session->Close();
}

int Main(int argc, char** argv) {
  CnnSettings settings;
  Flags flags(
      "cnn_benchmarks",
      "Trains ResNets on ImageNet's shape of images and prints images per second, with the "
      "flags and the lines of tf_cnn_benchmarks.\n\n"
      "Examples:\n"
      "  cnn_benchmarks --model=resnet50 --num_gpus=8 --batch_size=64 --use_fp16\n"
      "                                                     made-up images, in this process\n"
      "  cnn_benchmarks --device=cpu --model=resnet18 --image_size=64 --batch_size=4\n"
      "  cnn_benchmarks --data_dir=/data/imagenet --num_gpus=1\n"
      "  cnn_benchmarks --num_gpus=1 --forward_only --data_format=NCHW\n"
      "  monograph launch --ps=1 --workers=2 -- cnn_benchmarks --num_gpus=1\n"
      "                                                     one graph over two daemons\n"
      "  monograph launch --workers=2 -- cnn_benchmarks --replication=between_graph "
      "--variable_update=replicated\n");
  settings.AddTo(&flags);
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  const auto benchmark = [&](const std::optional<ClusterSpec>& cluster, const Layout& layout) {
    return Run(settings, cluster, layout).Benchmark();
  };
  return flags.Exit(RunReplicas(settings, benchmark));
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) { return monograph::examples::Main(argc, argv); }
