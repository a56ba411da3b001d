// Input where it is used: an op that reads its shard of a training batch in the task that trains on
// it. This header also brings what a client feeds from: datasets and their batches.
#pragma once

#include <cstdint>
#include <string>

#include "graph/scope.h"
#include "ops/input/batches.h"  // IWYU pragma: export
#include "ops/input/dataset.h"  // IWYU pragma: export

namespace monograph {

struct DatasetBatchOptions {
  std::string dataset = "fashion_mnist";  // as DatasetSpec::name
  std::string data_dir;                   // on the machine where the op runs
  std::string split = "train";
  int64_t seed = 0;          // of the order, and of a synthetic set
  int64_t batch_size = 100;  // of all shards together
  int64_t shard = 0, num_shards = 1;
  int64_t pixels = 784;         // of an image; the step fails if the files say otherwise
  DType image_type = DT_FLOAT;  // in [0, 1]; or DT_UINT8
};

// Shard `shard` of batch `index` (a scalar int64) of a dataset: images [rows, pixels] and int32
// labels [rows], the same rows that a client's BatchStream of equal options gives. Depends on
// `index` alone; the batches that follow are prepared in the background.
struct DatasetBatchOutputs {
  Output images, labels;
};
DatasetBatchOutputs DatasetBatch(const Scope& scope, const Output& index,
                                 const DatasetBatchOptions& options);

}  // namespace monograph
