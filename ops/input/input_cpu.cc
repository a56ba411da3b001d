#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "ops/input/batches.h"
#include "ops/input/dataset.h"

namespace monograph::ops::input {
namespace {

class DatasetBatchKernel : public Kernel {
 public:
  explicit DatasetBatchKernel(const KernelConstruction& c) : pixels_(c.attr<int64_t>("pixels")) {
    spec_.name = c.attr<std::string>("dataset");
    spec_.data_dir = c.attr<std::string>("data_dir");
    spec_.split = c.attr<std::string>("split");
    spec_.seed = options_.seed = static_cast<uint64_t>(c.attr<int64_t>("seed"));
    options_.batch_size = c.attr<int64_t>("batch_size");
    options_.shard = static_cast<int>(c.attr<int64_t>("shard"));
    options_.num_shards = static_cast<int>(c.attr<int64_t>("num_shards"));
    options_.image_type = c.attr<DType>("image_type");
  }

  Status Compute(KernelContext& c) override {
    // Waits for what is read ahead, or reads itself.
    if (!c.may_wait()) return c.Busy();
    if (c.input(0).shape().rank() != 0) {
      return InvalidArgument("index must be a scalar, not of shape " +
                             c.input(0).shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(BatchStream * stream, Open());
    MG_ASSIGN_OR_RETURN(Batch batch, stream->Get(c.input(0).scalar<int64_t>()));
    c.set_output(0, std::move(batch.images));
    c.set_output(1, std::move(batch.labels));
    return Status();
  }

 private:
  // Files are read by the first step; one that fails is followed by one that tries again.
  Result<BatchStream*> Open() {
    MutexLock lock(mutex_);
    if (stream_ != nullptr) return stream_.get();
    MG_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, LoadDataset(spec_));
    if (dataset->pixels() != pixels_) {
      return InvalidArgument("images of " + dataset->name + " have " +
                             std::to_string(dataset->pixels()) + " pixels; the graph expects " +
                             std::to_string(pixels_));
    }
    MG_ASSIGN_OR_RETURN(stream_, BatchStream::Make(std::move(dataset), options_));
    return stream_.get();
  }

  const int64_t pixels_;
  DatasetSpec spec_;
  BatchOptions options_;
  Mutex mutex_;
  std::unique_ptr<BatchStream> stream_ MG_GUARDED_BY(mutex_);
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<DatasetBatchKernel>({.op = "MonographDatasetBatch"});
}

}  // namespace monograph::ops::input
