#include "tests/train/training_curve.h"

#include <bit>
#include <utility>

#include "client/registries.h"
#include "examples/models/mnist_cnn.h"
#include "ops/constant/constant.h"
#include "ops/input/batches.h"
#include "ops/input/dataset.h"
#include "ops/input/input.h"
#include "train/replication.h"

namespace monograph::testing {
namespace {

constexpr int64_t kPixels = 28 * 28;

Result<Curve> Train(Session& session, const ReplicatedStep& step, const Outputs& feeds,
                    BatchStream* batches, int steps, int64_t row) {
  MG_RETURN_IF_ERROR(session.Run({}, {}, {step.init}).status());
  MG_ASSIGN_OR_RETURN(const Callable callable,
                      session.MakeCallable(feeds, step.results, {step.train}));
  Curve curve;
  for (int64_t index = 0; index < steps; ++index) {
    std::vector<Tensor> fed = {Tensor::Scalar<int64_t>(index)};
    if (batches != nullptr) {
      MG_ASSIGN_OR_RETURN(Batch batch, batches->Get(index));
      fed = {std::move(batch.images), std::move(batch.labels)};
    }
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> results,
                        session.RunCallable(callable, fed, {.steps = row}));
    curve.losses.push_back(results[0].scalar<float>());
    curve.accuracies.push_back(results[1].scalar<float>());
  }
  Outputs values;
  for (const ModelVariable& variable : step.variables) values.push_back(variable.value);
  MG_ASSIGN_OR_RETURN(curve.variables, session.Run({}, values));
  return curve;
}

}  // namespace

Result<Curve> TrainingCurve(const CurveOptions& options) {
  const examples::MnistCnn model{
      .conv1 = 4, .conv2 = 8, .fc = 32, .dropout = options.dropout, .seed = options.seed};
  const auto seed = static_cast<uint64_t>(options.seed);
  const Optimizer optimizer = Adam(1e-2);
  const ReplicateOptions where{.variable_devices = options.variable_devices};

  Graph graph = NewGraph();
  const Scope root = Scope(&graph).WithSeed(options.seed);
  std::unique_ptr<BatchStream> batches;
  Outputs feeds;
  ReplicatedStep step;
  if (options.executor_input) {
    const Output index =
        Placeholder(root.WithOpName("batch_index"), DT_INT64, PartialShape::Scalar());
    feeds = {index};
    std::vector<Outputs> shards;
    for (size_t i = 0; i < options.replicas.size(); ++i) {
      const DatasetBatchOutputs shard =
          DatasetBatch(root.WithDevice(options.replicas[i]), index,
                       {.dataset = "synthetic",
                        .seed = options.seed,
                        .batch_size = options.batch_size,
                        .shard = static_cast<int64_t>(i),
                        .num_shards = static_cast<int64_t>(options.replicas.size())});
      shards.push_back({shard.images, shard.labels});
    }
    MG_ASSIGN_OR_RETURN(
        step, ReplicateShards(root, options.replicas, shards, model.Training(), optimizer, where));
  } else {
    feeds = {Placeholder(root.WithOpName("images"), DT_FLOAT, {options.batch_size, kPixels}),
             Placeholder(root.WithOpName("labels"), DT_INT32, {options.batch_size})};
    MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> data,
                        LoadDataset({.name = "synthetic", .seed = seed}));
    MG_ASSIGN_OR_RETURN(
        batches,
        BatchStream::Make(std::move(data), {.batch_size = options.batch_size, .seed = seed}));
    MG_ASSIGN_OR_RETURN(
        step, Replicate(root, options.replicas, feeds, model.Training(), optimizer, where));
  }
  MG_RETURN_IF_ERROR(root.status());

  std::unique_ptr<Session> session;
  if (options.cluster) {
    MG_ASSIGN_OR_RETURN(session, Session::Connect(*options.cluster, graph, options.session));
  } else {
    SessionOptions local = options.session;
    local.device_count = {{kCpu, static_cast<int>(options.replicas.size())}};
    MG_ASSIGN_OR_RETURN(session, Session::Local(graph, std::move(local)));
  }
  MG_ASSIGN_OR_RETURN(Curve curve,
                      Train(*session, step, feeds, batches.get(), options.steps, options.row));
  MG_RETURN_IF_ERROR(session->Reset());
  MG_RETURN_IF_ERROR(session->Close());
  return curve;
}

std::string Difference(const Curve& a, const Curve& b) {
  if (a.losses.size() != b.losses.size() || a.variables.size() != b.variables.size())
    return "the curves differ in length";
  for (size_t i = 0; i < a.losses.size(); ++i) {
    if (std::bit_cast<uint32_t>(a.losses[i]) != std::bit_cast<uint32_t>(b.losses[i])) {
      return "step " + std::to_string(i) + ": loss " + std::to_string(a.losses[i]) + " and " +
             std::to_string(b.losses[i]);
    }
  }
  for (size_t i = 0; i < a.variables.size(); ++i) {
    if (!BitEqual(a.variables[i], b.variables[i]))
      return "variable " + std::to_string(i) + " differs at the end";
  }
  return "";
}

}  // namespace monograph::testing
