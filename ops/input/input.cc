#include "ops/input/input.h"

#include <cstdint>
#include <limits>
#include <string>

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

DatasetBatchOutputs DatasetBatch(const Scope& scope, const Output& index,
                                 const DatasetBatchOptions& options) {
  const Operation op = OpBuilder(scope, "MonographDatasetBatch")
                           .Input(index)
                           .Attr("dataset", options.dataset)
                           .Attr("data_dir", options.data_dir)
                           .Attr("split", options.split)
                           .Attr("seed", options.seed)
                           .Attr("batch_size", options.batch_size)
                           .Attr("shard", options.shard)
                           .Attr("num_shards", options.num_shards)
                           .Attr("pixels", options.pixels)
                           .Attr("image_type", options.image_type)
                           .Build();
  return {op.output(0), op.output(1)};
}

namespace ops::input {
namespace {

Status DatasetBatchShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  const int64_t batch = c.attr<int64_t>("batch_size"), shard = c.attr<int64_t>("shard"),
                shards = c.attr<int64_t>("num_shards");
  if (shard < 0 || shard >= shards) {
    return InvalidArgument("shard " + std::to_string(shard) + " of " + std::to_string(shards) +
                           ": it must be in [0, num_shards)");
  }
  if (batch < shards) {
    return InvalidArgument("the batch of " + std::to_string(batch) +
                           " examples is smaller than its " + std::to_string(shards) + " replicas");
  }
  if (int64_t product; shards > std::numeric_limits<int32_t>::max() ||
                       __builtin_mul_overflow(batch, shards, &product)) {
    return InvalidArgument("a batch of " + std::to_string(batch) + " examples cannot be cut into " +
                           std::to_string(shards) + " shards: both together are too large");
  }
  const int64_t rows = batch * (shard + 1) / shards - batch * shard / shards;
  c.set_output(0, {rows, c.attr<int64_t>("pixels")});
  c.set_output(1, {rows});
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("MonographDatasetBatch")
                    .Input("index: int64")
                    .Output("images: image_type")
                    .Output("labels: int32")
                    .Attr("dataset: {'mnist', 'fashion_mnist', 'synthetic'} = 'fashion_mnist'")
                    .Attr("data_dir: string = ''")
                    .Attr("split: {'train', 'test'} = 'train'")
                    .Attr("seed: int = 0")
                    .Attr("batch_size: int >= 1")
                    .Attr("shard: int >= 0 = 0")
                    .Attr("num_shards: int >= 1 = 1")
                    .Attr("pixels: int >= 1 = 784")
                    .Attr("image_type: {float, uint8} = float")
                    .Stateful()
                    .Shape(DatasetBatchShape)
                    .NoGradient());
}

}  // namespace ops::input
}  // namespace monograph
