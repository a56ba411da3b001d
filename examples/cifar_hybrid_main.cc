// cifar_hybrid: a CNN for images of CIFAR-10's shape, on workers with several devices: the replicas
// of one worker keep in step, the workers share the parameter servers each at its own pace. The
// images are made up.
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/registries.h"
#include "ops/activation/activation.h"
#include "ops/bias/bias.h"
#include "ops/cast/cast.h"
#include "ops/constant/constant.h"
#include "ops/conv/conv.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "tools/flags.h"
#include "tools/own_task.h"
#include "tools/run_metrics.h"
#include "tools/session_flags.h"
#include "train/trainer.h"

namespace monograph::examples {
namespace {

constexpr int64_t kSide = 32, kChannels = 3, kClasses = 10;
constexpr int64_t kPixels = kSide * kSide * kChannels;

Output ConvAndPool(const Scope& scope, ModelVariables& variables, const std::string& name,
                   const Output& x, int64_t in, int64_t out) {
  const Scope inner = scope.SubScope(name);
  const Output filter =
      variables.Get(name + "/weights", Shape{5, 5, in, out}, Initial::TruncatedNormal(0.05));
  const Output biases = variables.Get(name + "/biases", Shape{out}, Initial::Zeros());
  const Output conv = Conv2D(inner, x, filter, {1, 1, 1, 1}, "SAME");
  return MaxPool(inner, Relu(inner, BiasAdd(inner, conv, biases)), {1, 2, 2, 1}, {1, 2, 2, 1},
                 "SAME");
}

Output Dense(const Scope& scope, ModelVariables& variables, const std::string& name,
             const Output& x, int64_t in, int64_t out) {
  const Scope inner = scope.SubScope(name);
  const Output weights =
      variables.Get(name + "/weights", Shape{in, out}, Initial::TruncatedNormal(0.05));
  return BiasAdd(inner, MatMul(inner, x, weights),
                 variables.Get(name + "/biases", Shape{out}, Initial::Zeros()));
}

// Loss and accuracy.
Result<Outputs> Model(Scope& tower, std::span<const Output> batch, ModelVariables& variables) {
  const Output images = Reshape(tower, batch[0], {-1, kSide, kSide, kChannels});
  Output x = ConvAndPool(tower, variables, "conv1", images, kChannels, 16);
  x = ConvAndPool(tower, variables, "conv2", x, 16, 32);
  const int64_t features = kSide / 4 * (kSide / 4) * 32;
  x = Relu(tower,
           Dense(tower, variables, "local3", Reshape(tower, x, {-1, features}), features, 64));
  const Output logits = Dense(tower, variables, "softmax_linear", x, 64, kClasses);
  MG_RETURN_IF_ERROR(tower.status());
  const Output hits = Equal(tower, ArgMax(tower, logits, 1, DT_INT32), batch[1]);
  return Outputs{ReduceMean(tower, SparseSoftmaxCrossEntropyWithLogits(tower, logits, batch[1])),
                 ReduceMean(tower, Cast(tower, hits, DT_FLOAT))};
}

// Batch `number` of a worker: a pattern per class, under noise.
std::vector<Tensor> MakeBatch(int64_t number, int rank, int64_t rows) {
  std::mt19937 pattern(1), noise(static_cast<uint32_t>(number * 64 + rank));
  std::normal_distribution<float> normal;
  std::vector<float> patterns(static_cast<size_t>(kClasses * kPixels));
  for (float& value : patterns) value = normal(pattern);
  Tensor images = Tensor::Allocate(DT_FLOAT, Shape{rows, kPixels}).value();
  Tensor labels = Tensor::Allocate(DT_INT32, Shape{rows}).value();
  for (int64_t row = 0; row < rows; ++row) {
    const auto label = static_cast<int32_t>(noise() % kClasses);
    labels.data<int32_t>()[row] = label;
    for (int64_t i = 0; i < kPixels; ++i) {
      images.data<float>()[row * kPixels + i] =
          0.3f * patterns[static_cast<size_t>(label * kPixels + i)] + normal(noise);
    }
  }
  return {std::move(images), std::move(labels)};
}

struct Settings {
  SessionFlags session;
  std::string job_name = "worker";
  std::optional<int> task_index;  // none: the environment may say it (tools/own_task.h)
  int replicas_per_worker = 2, num_batches = 60;
  int64_t batch_size = 32;
};

// What the flags ask for is there.
Status CheckTask(int task, const std::optional<ClusterSpec>& cluster) {
  const int workers = cluster ? cluster->num_tasks("worker") : 1;
  if (workers == 0)
    return InvalidArgument("the cluster has no job 'worker': its tasks hold the replicas");
  if (task < 0 || task >= workers) {
    return InvalidArgument("--task_index=" + std::to_string(task) + ", but there are " +
                           std::to_string(workers) + " workers" +
                           (cluster ? "" : ": give --cluster, or use monograph launch"));
  }
  if (cluster && cluster->num_tasks("ps") == 0) {
    return InvalidArgument(
        "the cluster has no job 'ps': its tasks hold the variables that the workers share "
        "(monograph launch --ps=1)");
  }
  return Status();
}

Result<OwnTask> FindTask(const Settings& settings) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, settings.session.Cluster());
  OwnTask own{settings.task_index.value_or(0), ""};
  if (cluster) {
    MG_ASSIGN_OR_RETURN(own, FindOwnTask(*cluster, "worker", settings.task_index, "--task_index"));
  }
  MG_RETURN_IF_ERROR(CheckTask(own.index, cluster));
  return own;
}

Status Run(const Settings& settings) {
  MG_ASSIGN_OR_RETURN(const std::optional<ClusterSpec> cluster, settings.session.Cluster());
  MG_ASSIGN_OR_RETURN(const OwnTask own, FindTask(settings));
  LogOwnTask("worker", own);
  // Without a cluster, one worker: this process.
  ReplicateOptions options;
  std::string worker, client = "/device:CPU:0";
  SessionFlags session_flags = settings.session;
  if (cluster) {
    options.replication = Replication::kHybrid;
    options.async = true;
    options.rank = own.index;
    options.num_workers = cluster->num_tasks("worker");
    options.variable_devices = cluster->Tasks("ps");
    worker = "/job:worker/task:" + std::to_string(own.index);
    client = "/job:client/task:0";
    std::vector<std::string>& filters = session_flags.options.device_filters;
    if (filters.empty()) filters = {"/job:ps", worker};
    if (!session_flags.placement_file.empty())  // each client has a graph of its own
      session_flags.placement_file = ResultPath(session_flags.placement_file, options.rank);
  }
  std::vector<std::string> devices;
  for (int i = 0; i < settings.replicas_per_worker; ++i)
    devices.push_back(worker + "/device:CPU:" + std::to_string(i));

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(1);
  const Scope here = root.WithDevice(client);
  const int64_t rows = settings.batch_size;
  const Outputs feeds = {Placeholder(here.WithOpName("images"), DT_FLOAT, {rows, kPixels}),
                         Placeholder(here.WithOpName("labels"), DT_INT32, {rows})};
  MG_ASSIGN_OR_RETURN(const ReplicatedStep step,
                      Replicate(root, devices, feeds, Model, Adam(1e-3), options));
  MG_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      session_flags.Open(cluster, graph, settings.replicas_per_worker));
  const auto feed = [&](int, int64_t batch) {
    return Result<std::vector<Tensor>>(MakeBatch(batch, options.rank, rows));
  };
  {
    Trainer trainer(session.get(), step, {feeds}, feed,
                    {.start_timeout = session_flags.options.start_timeout});
    MG_RETURN_IF_ERROR(trainer.Start());
    MG_RETURN_IF_ERROR(trainer.Train(settings.num_batches, [&](const TrainedStep& made) {
      if (made.global_step % 20 != 0) return;
      std::printf("Worker: %d, Step: %lld, Loss: %.3f, Accuracy(batch): %.2f\n", options.rank,
                  static_cast<long long>(made.global_step), made.results[0].scalar<float>(),
                  made.results[1].scalar<float>());
      std::fflush(stdout);
    }));
  }  // says that the run has finished, for workers that come late
  return session->Close();
}

int Main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "cifar_hybrid",
      "Trains a CNN for images of CIFAR-10's shape: in step inside a worker, each worker at "
      "its own pace. The images are made up.\n\n"
      "Examples:\n"
      "  cifar_hybrid                                          two replicas in this process\n"
      "  monograph launch --ps=1 --workers=2 -- cifar_hybrid   a client per worker of two "
      "devices\n");
  flags.Add("batch_size", &settings.batch_size, "examples of one step of one worker", 1,
            Flags::kMostExamples);
  flags.Add("num_batches", &settings.num_batches, "updates of all workers together", 1);
  flags.Add("replicas_per_worker", &settings.replicas_per_worker,
            "CPU devices of each worker that hold a replica", 1, Flags::kMostThreads);
  flags.AddChoice("job_name", &settings.job_name, {"worker"}, "whose client this is");
  flags.Add("task_index", &settings.task_index,
            "this client's worker; 0 is the chief. Needed with several workers, unless "
            "MONOGRAPH_TASK or the rank that srun or mpirun gives says it",
            0);
  settings.session.AddTo(&flags);
  flags.AddCheck([&] { return FindTask(settings).status(); });
  if (std::optional<int> exit = flags.Parse(argc, argv)) return *exit;
  return flags.Exit(Run(settings));
}

}  // namespace
}  // namespace monograph::examples

int main(int argc, char** argv) { return monograph::examples::Main(argc, argv); }
