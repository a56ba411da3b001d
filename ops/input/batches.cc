// Batches of a dataset, by number. Get returns the batch if the thread has made it ahead of time
// and makes it itself otherwise, so that any order of numbers works, and the usual one, in
// sequence, is fast. The thread makes the `prefetch` batches that follow the last one asked for. A
// queue would be simpler, but replicas and restarted clients begin at any number.
#include "ops/input/batches.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "ops/input/shuffle.h"

namespace monograph {
namespace {

// Memory for so many examples.
Result<Batch> NewBatch(const Dataset& dataset, int64_t count, DType image_type) {
  Batch batch;
  MG_ASSIGN_OR_RETURN(batch.images, Tensor::Allocate(image_type, Shape{count, dataset.pixels()}));
  MG_ASSIGN_OR_RETURN(batch.labels, Tensor::Allocate(DT_INT32, Shape{count}));
  return batch;
}

// Makes it the examples `rows` of `dataset`, in that order.
void Fill(const Dataset& dataset, std::span<const uint32_t> rows, Batch* batch) {
  const bool bytes = batch->images.dtype() == DT_UINT8;
  const auto pixels = static_cast<size_t>(dataset.pixels());
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint8_t* from = dataset.images.data() + rows[i] * pixels;
    if (bytes) {
      std::memcpy(batch->images.data<uint8_t>() + i * pixels, from, pixels);
    } else {
      float* to = batch->images.data<float>() + i * pixels;
      for (size_t k = 0; k < pixels; ++k) to[k] = static_cast<float>(from[k]) * (1.0f / 255.0f);
    }
    batch->labels.data<int32_t>()[i] = dataset.labels[rows[i]];
  }
}

Status CheckImageType(DType type) {
  if (type == DT_FLOAT || type == DT_UINT8) return Status();
  return InvalidArgument("images come as float or uint8, not " + std::string(DTypeName(type)));
}

}  // namespace

class BatchStream::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const BatchOptions& options)
      : dataset_(std::move(dataset)), options_(options) {
    const int64_t batch = options.batch_size;
    begin_ = batch * options.shard / options.num_shards;
    end_ = batch * (options.shard + 1) / options.num_shards;
  }
  ~Impl() {
    {
      MutexLock lock(mutex_);
      stop_ = true;
    }
    wake_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }

  Result<Batch> Get(int64_t index) {
    if (index < 0)
      return OutOfRange("batch " + std::to_string(index) + " of " + dataset_->name +
                        ": batches count from 0");
    // Also those that are made ahead of time begin at a number that 63 bits hold.
    const int64_t ahead = std::max(options_.prefetch, 0) + 2;
    if (index > std::numeric_limits<int64_t>::max() / options_.batch_size - ahead) {
      return OutOfRange("batch " + std::to_string(index) + " of " + dataset_->name + " is too far");
    }
    if (options_.prefetch <= 0) return MakeBatch(index);
    MutexLock lock(mutex_);
    if (!thread_.joinable()) {
      try {
        thread_ = StartThread("mg-input", [this] { Prefetch(); });
      } catch (const std::system_error&) {  // no more threads: without one, then
        lock.Unlock();
        return MakeBatch(index);
      }
    }
    // If the thread is making this batch now, wait for it.
    ready_changed_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) { return making_ != index; });
    std::optional<Batch> found;
    if (auto it = ready_.find(index); it != ready_.end()) found = it->second;
    const bool moved = index + 1 != next_;
    if (moved) {
      next_ = index + 1;
      std::erase_if(ready_, [&](const auto& entry) MG_REQUIRES(mutex_) {
        return entry.first < next_ || entry.first >= next_ + options_.prefetch;
      });
    }
    lock.Unlock();
    if (moved) wake_.NotifyOne();
    if (found) return *std::move(found);
    return MakeBatch(index);
  }

 private:
  using Order = std::shared_ptr<const std::vector<uint32_t>>;

  // The order of an epoch; the last two asked for are kept.
  Order EpochOrder(int64_t epoch) {
    MutexLock lock(orders_mutex_);
    for (const auto& [kept, order] : orders_) {
      if (kept == epoch) return order;
    }
    const auto n = static_cast<uint32_t>(dataset_->examples);
    auto order = std::make_shared<const std::vector<uint32_t>>(
        Permutation(n, options_.seed, static_cast<uint64_t>(epoch)));
    if (orders_.size() == 2) orders_.erase(orders_.begin());
    orders_.emplace_back(epoch, order);
    return order;
  }

  Result<Batch> MakeBatch(int64_t index) {
    const int64_t first = index * options_.batch_size, count = end_ - begin_;
    MG_ASSIGN_OR_RETURN(Batch batch, NewBatch(*dataset_, count, options_.image_type));
    MG_ASSIGN_OR_RETURN(Tensor numbers, Tensor::Allocate(DT_UINT32, Shape{count}));
    const std::span rows(numbers.data<uint32_t>(), static_cast<size_t>(count));
    Order order;
    int64_t order_epoch = -1;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t position = first + begin_ + static_cast<int64_t>(i);
      const int64_t epoch = position / dataset_->examples, offset = position % dataset_->examples;
      if (!options_.shuffle) {
        rows[i] = static_cast<uint32_t>(offset);
        continue;
      }
      if (epoch != order_epoch) {
        order = EpochOrder(epoch);
        order_epoch = epoch;
      }
      rows[i] = (*order)[static_cast<size_t>(offset)];
    }
    Fill(*dataset_, rows, &batch);
    return batch;
  }

  void Prefetch() {
    MutexLock lock(mutex_);
    while (true) {
      int64_t wanted = -1;
      wake_.Wait(mutex_, [&]() MG_REQUIRES(mutex_) {
        wanted = -1;
        for (int64_t index = next_; index < next_ + options_.prefetch; ++index) {
          if (!ready_.contains(index)) {
            wanted = index;
            break;
          }
        }
        return stop_ || wanted >= 0;
      });
      if (stop_) return;
      making_ = wanted;
      lock.Unlock();
      Result<Batch> made = MakeBatch(wanted);
      lock.Lock();
      making_ = -1;
      if (!made.ok()) {  // the thread ends; the caller that asks for the batch gets the error
        ready_changed_.NotifyAll();
        return;
      }
      if (wanted >= next_ && wanted < next_ + options_.prefetch)
        ready_.emplace(wanted, std::move(made).value());
      // A caller that waited for this batch makes it itself if the window has moved on.
      ready_changed_.NotifyAll();
    }
  }

  const std::shared_ptr<const Dataset> dataset_;
  const BatchOptions options_;
  int64_t begin_ = 0, end_ = 0;  // rows of a batch

  Mutex orders_mutex_;
  std::vector<std::pair<int64_t, Order>> orders_ MG_GUARDED_BY(orders_mutex_);

  Mutex mutex_;
  CondVar wake_, ready_changed_;
  std::map<int64_t, Batch> ready_ MG_GUARDED_BY(mutex_);
  int64_t next_ MG_GUARDED_BY(mutex_) = 0;     // the first batch of the window that is made ahead
  int64_t making_ MG_GUARDED_BY(mutex_) = -1;  // the one that the thread makes now
  bool stop_ MG_GUARDED_BY(mutex_) = false;
  std::thread thread_ MG_GUARDED_BY(mutex_);
};

BatchStream::BatchStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchStream::~BatchStream() = default;

Result<std::unique_ptr<BatchStream>> BatchStream::Make(std::shared_ptr<const Dataset> dataset,
                                                       const BatchOptions& options) {
  MG_RETURN_IF_ERROR(CheckImageType(options.image_type));
  if (options.num_shards < 1 || options.shard < 0 || options.shard >= options.num_shards) {
    return InvalidArgument("shard " + std::to_string(options.shard) + " of " +
                           std::to_string(options.num_shards));
  }
  if (options.batch_size < options.num_shards) {
    return InvalidArgument("the batch of " + std::to_string(options.batch_size) +
                           " examples is smaller than its " + std::to_string(options.num_shards) +
                           " replicas");
  }
  if (int64_t product; __builtin_mul_overflow(options.batch_size, options.num_shards, &product)) {
    return InvalidArgument("the batch of " + std::to_string(options.batch_size) +
                           " examples is too large for " + std::to_string(options.num_shards) +
                           " shards");
  }
  return std::unique_ptr<BatchStream>(
      new BatchStream(std::make_unique<Impl>(std::move(dataset), options)));
}

Result<Batch> BatchStream::Get(int64_t index) { return impl_->Get(index); }

Result<Batch> Rows(const Dataset& dataset, int64_t begin, int64_t end, DType image_type) {
  MG_RETURN_IF_ERROR(CheckImageType(image_type));
  MG_CHECK(begin >= 0 && begin <= end && end <= dataset.examples);
  std::vector<uint32_t> rows;
  for (int64_t row = begin; row < end; ++row) rows.push_back(static_cast<uint32_t>(row));
  MG_ASSIGN_OR_RETURN(Batch batch, NewBatch(dataset, end - begin, image_type));
  Fill(dataset, rows, &batch);
  return batch;
}

}  // namespace monograph
