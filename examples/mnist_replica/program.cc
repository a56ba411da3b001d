// The graph of mnist_replica and its training data. Both cut the examples in the same way
// (AmongLoops): a training loop is what feeds batches by itself, so there is one loop per client,
// or one per replica with in-graph --async. The rows of a batch may be fed by the client or read
// beside each replica; they are the same rows, and so is the result.
#include "examples/mnist_replica/program.h"

#include <cmath>
#include <utility>

#include "client/registries.h"
#include "graph/batch_shards.h"
#include "ops/constant/constant.h"

namespace monograph::examples {
namespace {

// A batch of `batch_size` examples is cut into `parts`, one for each training loop.
struct Cut {
  int64_t batch_size;
  int parts;
};

// The cut of a batch among the training loops of all clients.
Cut AmongLoops(const Settings& settings, const Layout& layout) {
  const int loops = settings.in_graph()
                        ? (settings.async ? static_cast<int>(layout.replicas.size()) : 1)
                        : layout.workers;
  return {settings.asynchronous() ? settings.batch_size * loops : settings.batch_size, loops};
}

// Rows of part `part`.
int64_t RowsOf(const Cut& cut, int part) {
  const std::vector<int64_t> even(static_cast<size_t>(cut.parts), 1);
  return RowsByShares(cut.batch_size, even)[static_cast<size_t>(part)];
}

int LoopsHere(const Settings& settings, const Layout& layout) {
  return settings.in_graph() && settings.async ? static_cast<int>(layout.replicas.size()) : 1;
}

ReplicateOptions OptionsWith(const Settings& settings, const Layout& layout,
                             const std::vector<int64_t>& shares) {
  ReplicateOptions options = OptionsOf(settings, layout);
  options.shares = shares;
  options.loss_scale = LossScaleOf(settings).value();
  if (!settings.in_graph() && !options.async) options.global_batch_size = settings.batch_size;
  return options;
}

// Placeholders {images, labels} of `rows` examples.
Outputs FedBatch(const Scope& client, const Settings& settings, int64_t rows, int64_t pixels) {
  return {Placeholder(client.WithOpName("images"), settings.images(), {rows, pixels}),
          Placeholder(client.WithOpName("labels"), DT_INT32, {rows})};
}

// Each replica's part of the batch that a client feeds to it alone.
std::vector<Outputs> FedShards(const Scope& client, const Settings& settings, const Layout& layout,
                               int64_t pixels, Program* program) {
  const Cut cut = AmongLoops(settings, layout);
  for (int loop = 0; loop < cut.parts; ++loop)
    program->feeds.push_back(FedBatch(client, settings, RowsOf(cut, loop), pixels));
  return program->feeds;
}

// Each replica's part of the batch, read beside it.
std::vector<Outputs> ReadShards(const Scope& root, const Scope& client, const Settings& settings,
                                const Layout& layout, int64_t pixels, Program* program) {
  for (int loop = 0; loop < LoopsHere(settings, layout); ++loop) {
    program->feeds.push_back(
        {Placeholder(client.WithOpName("batch_index"), DT_INT64, PartialShape::Scalar())});
  }
  const auto here = static_cast<int64_t>(layout.replicas.size());
  DatasetBatchOptions input{.dataset = settings.data_name,
                            .data_dir = settings.data_dir,
                            .seed = settings.seed,
                            .batch_size = AmongLoops(settings, layout).batch_size,
                            .shard = layout.rank * here,
                            .num_shards = layout.replicas_of_all(),
                            .pixels = pixels,
                            .image_type = settings.images()};
  std::vector<Outputs> shards;
  for (size_t r = 0; r < layout.replicas.size(); ++r) {
    const Output index = program->feeds[program->feeds.size() > 1 ? r : 0][0];
    const DatasetBatchOutputs shard = DatasetBatch(
        root.WithDevice(CpuBeside(layout.replicas[r])).WithOpName("input"), index, input);
    shards.push_back({shard.images, shard.labels});
    ++input.shard;
  }
  return shards;
}

}  // namespace

int64_t RowsOfStep(const Settings& settings, const Layout& layout) {
  return RowsOf(AmongLoops(settings, layout), layout.rank);
}

Result<std::unique_ptr<Program>> BuildProgram(const Settings& settings, const Layout& layout,
                                              int64_t pixels, const std::vector<int64_t>& shares) {
  auto program = std::make_unique<Program>(NewGraph());
  const Scope root = Scope(&program->graph).WithSeed(settings.seed);
  const Scope client = root.WithDevice(layout.client);
  MnistCnn model = settings.model;
  model.side = std::llround(std::sqrt(static_cast<double>(pixels)));
  model.seed = settings.seed;
  model.compute = settings.compute();
  const ReplicateOptions options = OptionsWith(settings, layout, shares);
  const Optimizer adam = Adam(settings.learning_rate);

  if (settings.input == "executor" || LoopsHere(settings, layout) > 1) {
    const std::vector<Outputs> parts =
        settings.input == "executor"
            ? ReadShards(root, client, settings, layout, pixels, program.get())
            : FedShards(client, settings, layout, pixels, program.get());
    MG_ASSIGN_OR_RETURN(program->step, ReplicateShards(root, layout.replicas, parts,
                                                       model.Training(), adam, options));
  } else {
    program->feeds = {FedBatch(client, settings, RowsOfStep(settings, layout), pixels)};
    MG_ASSIGN_OR_RETURN(program->step, Replicate(root, layout.replicas, program->feeds[0],
                                                 model.Training(), adam, options));
  }

  program->eval_images =
      Placeholder(client.WithOpName("eval_images"), settings.images(), {-1, pixels});
  program->eval_labels = Placeholder(client.WithOpName("eval_labels"), DT_INT32, {-1});
  MG_ASSIGN_OR_RETURN(
      program->evaluation,
      // In-graph asynchronous training goes on when the task of the first replica is lost, so the
      // client evaluates.
      BuildEvaluation(
          root, settings.in_graph() && settings.async ? layout.client : layout.replicas[0],
          {program->eval_images, program->eval_labels}, model.Evaluation(), program->step));
  return program;
}

Result<std::unique_ptr<TrainingData>> TrainingData::Load(const Settings& settings,
                                                         const Layout& layout,
                                                         const Dataset& like) {
  auto data = std::make_unique<TrainingData>();
  if (settings.input == "executor") return data;
  MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> train,
                      LoadDataset({.name = settings.data_name,
                                   .data_dir = settings.data_dir,
                                   .split = "train",
                                   .seed = static_cast<uint64_t>(settings.seed)}));
  if (train->pixels() != like.pixels()) return DataLoss("training and test images differ in size");
  const Cut cut = AmongLoops(settings, layout);
  for (int loop = 0; loop < LoopsHere(settings, layout); ++loop) {
    MG_ASSIGN_OR_RETURN(std::unique_ptr<BatchStream> stream,
                        BatchStream::Make(train, {.batch_size = cut.batch_size,
                                                  .seed = static_cast<uint64_t>(settings.seed),
                                                  .shard = layout.rank + loop,
                                                  .num_shards = cut.parts,
                                                  .image_type = settings.images()}));
    data->streams_.push_back(std::move(stream));
  }
  return data;
}

Result<std::vector<Tensor>> TrainingData::Feeds(int loop, int64_t batch) const {
  if (streams_.empty()) return std::vector<Tensor>{Tensor::Scalar<int64_t>(batch)};
  MG_ASSIGN_OR_RETURN(Batch fed, streams_[static_cast<size_t>(loop)]->Get(batch));
  return std::vector<Tensor>{std::move(fed.images), std::move(fed.labels)};
}

}  // namespace monograph::examples
