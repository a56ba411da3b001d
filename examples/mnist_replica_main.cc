// mnist_replica: trains the tutorials' CNN by in-graph replication: one client, one graph, a
// replica per worker.
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/flags.h"
#include "client/registries.h"
#include "client/replicated_step.h"
#include "client/session.h"
#include "client/session_flags.h"
#include "examples/models/mnist_cnn.h"
#include "ops/constant/constant.h"
#include "ops/input/batches.h"
#include "ops/input/dataset.h"
#include "ops/input/input.h"

namespace monograph::examples {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  SessionFlags session;
  std::string replication = "in_graph", variable_update = "parameter_server";
  int num_replicas = 0;
  int64_t batch_size = 100, eval_batch_size = 500;
  int num_batches = 2000, num_warmup_batches = 10, display_every = 100, steps_in_flight = 1;
  std::string data_name = "fashion_mnist", data_dir, input = "client", image_type = "float",
              trace_file;
  int64_t seed = 0;
  double learning_rate = 1e-4;
  MnistCnn model;

  void AddTo(Flags* flags);
  Status Check() const;
  DType images() const { return image_type == "uint8" ? DT_UINT8 : DT_FLOAT; }
};

void Settings::AddTo(Flags* flags) {
  flags->Section("Training");
  flags->Add("batch_size", &batch_size, "global batch: all replicas together");
  flags->Add("num_batches", &num_batches, "steps that are timed");
  flags->Add("num_warmup_batches", &num_warmup_batches,
             "training steps before those, not timed or displayed");
  flags->Add("display_every", &display_every, "steps between progress lines");
  flags->Add("learning_rate", &learning_rate, "of Adam");
  flags->Add("seed", &seed, "of weights, order of examples and dropout: same seed, same result");
  flags->Add("eval_batch_size", &eval_batch_size,
             "examples at a time when the test set is evaluated at the end");
  flags->Add("steps_in_flight", &steps_in_flight,
             "steps that run at the same time; above 1 a step may read weights before the last "
             "update, and results vary from run to run");
  flags->Add("trace_file", &trace_file,
             "write Chrome's trace of one step, the last of the warm-up");
  flags->Section("Model");
  flags->Add("fc", &model.fc, "units of the dense layer");
  flags->Add(
      "dropout", &model.dropout,
      "fraction of them that each training step drops (1 - keep_prob of the tutorials); 0: none");
  flags->Section("Data");
  flags->AddChoice("data_name", &data_name, {"fashion_mnist", "mnist", "synthetic"},
                   "data set; synthetic needs no files");
  flags->Add("data_dir", &data_dir,
             "directory of the four files, plain or .gz; default: that of Debian's package "
             "dataset-fashion-mnist");
  flags->AddChoice("input", &input, {"client", "executor"},
                   "who reads the data: this program, or each worker its own part (the same rows)");
  flags->AddChoice("image_type", &image_type, {"float", "uint8"},
                   "how images travel to the workers");
  flags->Section("Replication");
  flags->Add("replication", &replication, "in_graph: one client, one graph, a replica per worker");
  flags->AddChoice(
      "variable_update", &variable_update, {"parameter_server", "central"},
      "where variables live: spread over the tasks of job ps, or all beside the first replica");
  flags->Add("num_replicas", &num_replicas,
             "number of replicas; default: one per task of job worker, or 1 without a cluster");
  session.AddTo(flags);
}

Status Settings::Check() const {
  if (replication != "in_graph") {
    return Unimplemented("--replication=" + replication +
                         ": this version replicates in_graph only");
  }
  if (batch_size < 1) return InvalidArgument("--batch_size must be at least 1");
  if (eval_batch_size < 1) return InvalidArgument("--eval_batch_size must be at least 1");
  if (num_batches < 1) return InvalidArgument("--num_batches must be at least 1");
  if (num_warmup_batches < 0) return InvalidArgument("--num_warmup_batches must be 0 or more");
  if (display_every < 1) return InvalidArgument("--display_every must be at least 1");
  if (steps_in_flight < 1) return InvalidArgument("--steps_in_flight must be at least 1");
  if (num_replicas < 0) return InvalidArgument("--num_replicas must be at least 1");
  if (model.fc < 1) return InvalidArgument("--fc must be at least 1");
  if (!(model.dropout >= 0 && model.dropout < 1))
    return InvalidArgument("--dropout must be in [0, 1)");
  if (!(learning_rate > 0)) return InvalidArgument("--learning_rate must be greater than 0");
  return Status();
}

// Where the parts of the program go.
struct Layout {
  std::vector<std::string> replicas;   // a device each
  std::vector<std::string> variables;  // devices; empty: the first replica's
  std::string client;                  // this process
};

Result<Layout> MakeLayout(const Settings& settings, const std::optional<ClusterSpec>& cluster) {
  Layout layout;
  if (!cluster) {
    layout.client = "/job:localhost/replica:0/task:0/device:CPU:0";
    for (int i = 0; i < std::max(1, settings.num_replicas); ++i) {
      layout.replicas.push_back("/job:localhost/replica:0/task:0/device:CPU:" + std::to_string(i));
    }
  } else {
    layout.client = "/job:client/replica:0/task:0";
    layout.replicas = cluster->Tasks("worker");
    if (layout.replicas.empty())
      return InvalidArgument("the cluster has no job 'worker': its tasks hold the replicas");
    if (settings.num_replicas > static_cast<int>(layout.replicas.size())) {
      return InvalidArgument("--num_replicas=" + std::to_string(settings.num_replicas) +
                             ", but job worker has " + std::to_string(layout.replicas.size()) +
                             " tasks");
    }
    if (settings.num_replicas > 0)
      layout.replicas.resize(static_cast<size_t>(settings.num_replicas));
    if (settings.variable_update == "parameter_server") {
      layout.variables = cluster->Tasks("ps");
      if (layout.variables.empty()) {
        return InvalidArgument(
            "--variable_update=parameter_server needs a job 'ps' in the cluster; without one use "
            "--variable_update=central");
      }
    }
  }
  if (settings.batch_size < static_cast<int64_t>(layout.replicas.size())) {
    return InvalidArgument("--batch_size=" + std::to_string(settings.batch_size) +
                           " is smaller than the " + std::to_string(layout.replicas.size()) +
                           " replicas: each needs at least one example");
  }
  return layout;
}

// The graph, and its ends that the client holds.
struct Program {
  explicit Program(Graph g) : graph(std::move(g)) {}
  Graph graph;
  ReplicatedStep step;
  Outputs feeds;  // {images, labels} or, with --input=executor, {index of the batch}
  Output eval_images, eval_labels;
  Outputs evaluation;  // loss, accuracy
};

Result<std::unique_ptr<Program>> BuildProgram(const Settings& settings, const Layout& layout,
                                              int64_t pixels) {
  auto program = std::make_unique<Program>(NewGraph());
  const Scope root = Scope(&program->graph).WithSeed(settings.seed);
  const Scope client = root.WithDevice(layout.client);
  MnistCnn model = settings.model;
  model.side = std::llround(std::sqrt(static_cast<double>(pixels)));
  model.seed = settings.seed;
  const ReplicateOptions options{.variable_devices = layout.variables};

  if (settings.input == "client") {
    const int64_t batch = settings.batch_size;
    program->feeds = {Placeholder(client.WithOpName("images"), settings.images(), {batch, pixels}),
                      Placeholder(client.WithOpName("labels"), DT_INT32, {batch})};
    MG_ASSIGN_OR_RETURN(program->step,
                        Replicate(root, layout.replicas, program->feeds, model.Training(),
                                  Adam(settings.learning_rate), options));
  } else {
    const Output index =
        Placeholder(client.WithOpName("batch_index"), DT_INT64, PartialShape::Scalar());
    program->feeds = {index};
    DatasetBatchOptions input{.dataset = settings.data_name,
                              .data_dir = settings.data_dir,
                              .seed = settings.seed,
                              .batch_size = settings.batch_size,
                              .num_shards = static_cast<int64_t>(layout.replicas.size()),
                              .pixels = pixels,
                              .image_type = settings.images()};
    std::vector<Outputs> shards;
    for (const std::string& replica : layout.replicas) {
      const DatasetBatchOutputs shard =
          DatasetBatch(root.WithDevice(replica).WithOpName("input"), index, input);
      shards.push_back({shard.images, shard.labels});
      ++input.shard;
    }
    MG_ASSIGN_OR_RETURN(program->step,
                        ReplicateShards(root, layout.replicas, shards, model.Training(),
                                        Adam(settings.learning_rate), options));
  }

  program->eval_images =
      Placeholder(client.WithOpName("eval_images"), settings.images(), {-1, pixels});
  program->eval_labels = Placeholder(client.WithOpName("eval_labels"), DT_INT32, {-1});
  MG_ASSIGN_OR_RETURN(
      program->evaluation,
      BuildEvaluation(root, layout.replicas[0], {program->eval_images, program->eval_labels},
                      model.Evaluation(), program->step));
  return program;
}

// Steps that run: at most `window` at a time. Keeps the first failure.
class StepWindow {
 public:
  explicit StepWindow(int window) : free_(window), window_(window) {}

  Status Enter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return free_ > 0; });
    if (status_.ok()) --free_;
    return status_;
  }
  void Leave(const Status& status) {
    std::lock_guard lock(mutex_);
    ++free_;
    status_.Update(status);
    changed_.notify_all();  // under the lock: the window may be gone right after
  }
  Status WaitForAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return free_ == window_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  const int window_;
  Status status_;
};

class Trainer {
 public:
  Trainer(const Settings& settings, const Program& program, Session* session, BatchStream* batches)
      : settings_(settings), program_(program), session_(session), batches_(batches) {}

  // Trains; images per second without the warm-up.
  Result<double> Train();
  // Accuracy over a whole set.
  Result<double> Evaluate(const Dataset& test);

 private:
  Result<std::vector<Tensor>> Feeds(int64_t index);
  void Display(int64_t step, const std::vector<Tensor>& results);
  Status TraceStep(const Callable& callable, int64_t index);

  const Settings& settings_;
  const Program& program_;
  Session* const session_;
  BatchStream* const batches_;  // nullptr with --input=executor

  std::mutex display_mutex_;
  int64_t displayed_ = 0;  // guarded by display_mutex_
  Clock::time_point displayed_at_;
};

Result<std::vector<Tensor>> Trainer::Feeds(int64_t index) {
  if (batches_ == nullptr) return std::vector<Tensor>{Tensor::Scalar<int64_t>(index)};
  MG_ASSIGN_OR_RETURN(Batch batch, batches_->Get(index));
  return std::vector<Tensor>{std::move(batch.images), std::move(batch.labels)};
}

void Trainer::Display(int64_t step, const std::vector<Tensor>& results) {
  std::lock_guard lock(display_mutex_);
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - displayed_at_).count();
  const double rate = static_cast<double>((step - displayed_) * settings_.batch_size) / seconds;
  displayed_ = step;
  displayed_at_ = now;
  std::printf("step %lld  loss %.3f  accuracy %.2f  images/sec %.1f\n",
              static_cast<long long>(step), results[0].scalar<float>(), results[1].scalar<float>(),
              rate);
  std::fflush(stdout);
}

Status Trainer::TraceStep(const Callable& callable, int64_t index) {
  MG_ASSIGN_OR_RETURN(const std::vector<Tensor> feeds, Feeds(index));
  RunMetadata metadata;
  MG_RETURN_IF_ERROR(session_->RunCallable(callable, feeds, {.trace = true}, &metadata).status());
  std::ofstream file(settings_.trace_file);
  file << metadata.trace_json;
  file.close();
  if (!file) return FailedPrecondition("cannot write the trace to '" + settings_.trace_file + "'");
  return Status();
}

Result<double> Trainer::Train() {
  MG_RETURN_IF_ERROR(session_->Run({}, {}, {program_.step.init}).status());
  MG_ASSIGN_OR_RETURN(
      const Callable callable,
      session_->MakeCallable(program_.feeds, program_.step.results, {program_.step.train}));
  const int64_t warmup = settings_.num_warmup_batches, total = warmup + settings_.num_batches;
  const int64_t traced = settings_.trace_file.empty() ? -1 : std::max<int64_t>(0, warmup - 1);
  StepWindow window(settings_.steps_in_flight);
  Clock::time_point start = displayed_at_ = Clock::now();
  Status status;
  for (int64_t index = 0; index < total; ++index) {
    if (index == warmup) {
      if (status = window.WaitForAll(); !status.ok()) break;
      start = displayed_at_ = Clock::now();
    }
    if (index == traced) {
      if (status = window.WaitForAll(); !status.ok()) break;
      if (status = TraceStep(callable, index); !status.ok()) break;
      continue;
    }
    Result<std::vector<Tensor>> feeds = Feeds(index);
    if (status = feeds.status(); !status.ok()) break;
    const int64_t step = index + 1 - warmup;
    const bool display = step > 0 && step % settings_.display_every == 0;
    if (settings_.steps_in_flight == 1) {
      Result<std::vector<Tensor>> results = session_->RunCallable(callable, *feeds);
      if (status = results.status(); !status.ok()) break;
      if (display) Display(step, *results);
    } else {
      if (status = window.Enter(); !status.ok()) break;
      session_->RunAsync(
          callable, *feeds,
          [this, step, display, &window, kept = *feeds](Result<std::vector<Tensor>> results) {
            if (results.ok() && display) Display(step, *results);
            window.Leave(results.status());
          });
    }
  }
  const Status rest =
      window.WaitForAll();  // also after a failure: running steps refer to the window
  MG_RETURN_IF_ERROR(status);
  MG_RETURN_IF_ERROR(rest);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const int64_t timed = settings_.num_batches - (traced >= warmup ? 1 : 0);
  return static_cast<double>(timed * settings_.batch_size) / seconds;
}

Result<double> Trainer::Evaluate(const Dataset& test) {
  MG_ASSIGN_OR_RETURN(const Callable callable,
                      session_->MakeCallable({program_.eval_images, program_.eval_labels},
                                             {program_.evaluation[1]}));
  double hits = 0;
  for (int64_t begin = 0; begin < test.examples; begin += settings_.eval_batch_size) {
    const int64_t end = std::min(begin + settings_.eval_batch_size, test.examples);
    MG_ASSIGN_OR_RETURN(Batch batch, Rows(test, begin, end, settings_.images()));
    const std::vector<Tensor> feeds = {std::move(batch.images), std::move(batch.labels)};
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> results, session_->RunCallable(callable, feeds));
    hits += std::round(static_cast<double>(results[0].scalar<float>()) *
                       static_cast<double>(end - begin));
  }
  return hits / static_cast<double>(test.examples);
}

Status Run(const Settings& settings) {
  MG_RETURN_IF_ERROR(settings.Check());
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, settings.session.Cluster());
  MG_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(settings, cluster));

  DatasetSpec spec{.name = settings.data_name,
                   .data_dir = settings.data_dir,
                   .split = "test",
                   .seed = static_cast<uint64_t>(settings.seed)};
  MG_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> test, LoadDataset(spec));
  std::unique_ptr<BatchStream> batches;
  if (settings.input == "client") {
    spec.split = "train";
    MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> train, LoadDataset(spec));
    if (train->pixels() != test->pixels())
      return DataLoss("training and test images differ in size");
    MG_ASSIGN_OR_RETURN(
        batches, BatchStream::Make(std::move(train), {.batch_size = settings.batch_size,
                                                      .seed = static_cast<uint64_t>(settings.seed),
                                                      .image_type = settings.images()}));
  }
  if (test->height != test->width) return InvalidArgument("the model takes square images");
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                      BuildProgram(settings, layout, test->pixels()));
  MG_ASSIGN_OR_RETURN(
      const std::unique_ptr<Session> session,
      settings.session.Open(cluster, program->graph, static_cast<int>(layout.replicas.size())));
  Trainer trainer(settings, *program, session.get(), batches.get());
  MG_ASSIGN_OR_RETURN(const double images_per_second, trainer.Train());
  MG_ASSIGN_OR_RETURN(const double accuracy, trainer.Evaluate(*test));
  std::printf("test accuracy: %.4f\ntotal images/sec: %.2f\n", accuracy, images_per_second);
  std::fflush(stdout);
  return session->Close();
}

int Main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "mnist_replica",
      "Trains a convolutional network on MNIST's format of data by in-graph replication, and "
      "prints its accuracy on the test set.\n\n"
      "Examples:\n"
      "  mnist_replica                                                       in this process\n"
      "  mnist_replica --num_replicas=2 --log_device_placement=summary       two replicas in this "
      "process\n"
      "  monograph launch --ps=1 --workers=2 -- mnist_replica --fc=128       on daemons that live "
      "as long as it does\n"
      "  mnist_replica --cluster=cluster.json --input=executor --trace_file=step.json\n");
  settings.AddTo(&flags);
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  const Status status = Run(settings);
  if (!status.ok()) {
    std::fprintf(stderr, "mnist_replica: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) { return monograph::examples::Main(argc, argv); }
