// BatchStream: the batches of a training run, by number.
//
// The examples of a dataset follow each other epoch by epoch, each epoch in an order of its own
// that depends on (seed, epoch) alone; batch k is examples [k*B, (k+1)*B) of that sequence, and may
// reach from one epoch into the next. Shard i of N of a batch is its rows floor(B*i/N) to
// floor(B*(i+1)/N). So every process that has the files gets the same rows for the same number, and
// a shard is what Replicate cuts out of the batch.
//
// Threads: Get may be called from any thread. One thread of the stream's own ("mg-input") makes the
// next `prefetch` batches while the caller uses the one that it got; it starts with the first Get
// and ends with the stream.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "base/tensor.h"
#include "ops/input/dataset.h"

namespace monograph {

struct BatchOptions {
  int64_t batch_size = 100;  // of all shards together
  uint64_t seed = 0;
  bool shuffle = true;
  int shard = 0, num_shards = 1;
  DType image_type = DT_FLOAT;  // pixels / 255; or DT_UINT8, as in the file
  int prefetch = 2;             // batches; 0: no thread
};

struct Batch {
  Tensor images;  // [rows, pixels]
  Tensor labels;  // int32 [rows]
};

class BatchStream {
 public:
  // InvalidArgument for a batch smaller than the shards, a shard that there is none of, or another
  // image type.
  static Result<std::unique_ptr<BatchStream>> Make(std::shared_ptr<const Dataset> dataset,
                                                   const BatchOptions& options);
  ~BatchStream();

  // Batch `index`, 0 or more: OutOfRange otherwise. Batches asked for in order are made ahead of
  // time. The tensors may be shared with later callers of the same index.
  Result<Batch> Get(int64_t index);

 private:
  class Impl;
  explicit BatchStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Rows [begin, end) of a dataset in its own order: for evaluation. REQUIRES: in range.
Result<Batch> Rows(const Dataset& dataset, int64_t begin, int64_t end, DType image_type = DT_FLOAT);

}  // namespace monograph
