// SaveV2 and RestoreV2. FileKernel gives each call a thread of its own, and the two kernels check
// their inputs and call ops/checkpoint_files/checkpoint_file.h and
// ops/checkpoint_files/checkpoint_reader.h there. A restore reads straight from the file into its
// outputs.
#include <atomic>
#include <charconv>
#include <filesystem>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "executor/kernel.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/checkpoint_reader.h"

namespace monograph::ops::checkpoint {
namespace {

constexpr char kSharedFolder[] = "; a checkpoint lies in a folder that every task sees";

// A kernel that reads or writes files. Each call runs on a thread of its own, since the threads
// that compute and those that move messages serve other steps, too. Aborting the step stops the
// call.
class FileKernel : public AsyncKernel {
 public:
  ~FileKernel() override {
    MutexLock lock(mutex_);
    for (Call& call : calls_) {
      // `done` may end the step and destroy this kernel on the call's own thread, which cannot join
      // itself.
      if (call.thread.get_id() == std::this_thread::get_id()) {
        call.thread.detach();
      } else {
        call.thread.join();
      }
    }
  }

  void ComputeAsync(KernelContext& c, Done done) final {
    std::stop_source stop;
    if (!c.OnCancel([stop]() mutable { stop.request_stop(); }))
      return done(Cancelled("the step was aborted"));
    MutexLock lock(mutex_);
    std::erase_if(calls_, [](Call& call) {
      if (!*call.over) return false;
      call.thread.join();
      return true;
    });
    Call& call = calls_.emplace_back();
    call.thread = StartThread("mg-file", [this, &c, stop, over = call.over, done] {
      done(Work(c, stop.get_token()));
      *over = true;  // the kernel may be gone
    });
  }

 protected:
  virtual Status Work(KernelContext& c, const std::stop_token& stop) const = 0;

 private:
  struct Call {
    std::thread thread;
    // Default order: once per call, and the thread is joined then.
    std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
  };
  Mutex mutex_;
  std::list<Call> calls_ MG_GUARDED_BY(mutex_);
};

// The names and slices of the inputs, for `tensors` tensors.
struct Names {
  std::string prefix;
  const std::string* names;
  const std::string* slices;

  static Result<Names> Of(const KernelContext& c, int tensors) {
    if (c.input(0).elements() != 1)
      return InvalidArgument("prefix must be one string, not string" +
                             c.input(0).shape().ToString());
    for (const int i : {1, 2}) {
      if (c.input(i).elements() == tensors) continue;
      return InvalidArgument(std::string(i == 1 ? "tensor_names" : "shape_and_slices") + " has " +
                             std::to_string(c.input(i).elements()) + " elements for " +
                             std::to_string(tensors) + " tensors");
    }
    return Names{*c.input(0).strings(), c.input(1).strings(), c.input(2).strings()};
  }
};

class SaveKernel : public FileKernel {
 public:
  explicit SaveKernel(const KernelConstruction&) {}

 private:
  Status Work(KernelContext& c, const std::stop_token& stop) const override {
    constexpr int kFirst = 3;
    MG_ASSIGN_OR_RETURN(const Names names, Names::Of(c, c.num_inputs() - kFirst));
    std::vector<CheckpointTensor> tensors;
    for (int i = 0; i + kFirst < c.num_inputs(); ++i) {
      if (!names.slices[i].empty()) {
        return Unimplemented("'" + names.names[i] + "' is to be saved as the slice '" +
                             names.slices[i] + "'; save it as a tensor of its own");
      }
      const Tensor& value = c.input(kFirst + i);
      tensors.push_back({names.names[i], value.dtype(), value.shape(), {value}});
    }
    const std::filesystem::path file = CheckpointFileName(names.prefix);
    std::error_code error;
    if (file.has_parent_path() && !std::filesystem::is_directory(file.parent_path(), error)) {
      return FailedPrecondition("cannot write '" + file.string() + "': there is no folder '" +
                                file.parent_path().string() + "'" + kSharedFolder);
    }
    return WriteCheckpointFile(file.string(), tensors, stop);
  }
};

// Parses what RowsOfShape writes.
Result<RowRange> ParseRows(const std::string& slice, const Shape& shape) {
  if (slice.empty()) return RowRange();
  std::string dims, columns;
  for (int i = 0; i < shape.rank(); ++i) dims += std::to_string(shape[i]) + " ";
  for (int i = 1; i < shape.rank(); ++i) columns += ":-";
  std::string_view rows = slice;
  if (shape.rank() < 1 || !rows.starts_with(dims))
    return InvalidArgument("the slice '" + slice + "' is not of shape " + shape.ToString());
  rows.remove_prefix(dims.size());
  int64_t begin = 0, length = 0;
  if (rows.ends_with(columns)) {
    rows.remove_suffix(columns.size());
    if (rows == "-") return RowRange();
    const char* const end = rows.data() + rows.size();
    const auto [comma, no_begin] = std::from_chars(rows.data(), end, begin);
    if (no_begin == std::errc() && comma != end && *comma == ',') {
      const auto [after, no_length] = std::from_chars(comma + 1, end, length);
      if (no_length == std::errc() && after == end && begin >= 0 && length >= 0 &&
          begin <= shape[0] && length <= shape[0] - begin)
        return RowRange{begin, begin + length};
    }
  }
  return Unimplemented("the slice '" + slice + "': only rows that are there can be read, as in " +
                       "'7 2 3,4:-'");
}

class RestoreKernel : public FileKernel {
 public:
  explicit RestoreKernel(const KernelConstruction&) {}

 private:
  Status Work(KernelContext& c, const std::stop_token& stop) const override {
    MG_ASSIGN_OR_RETURN(const Names names, Names::Of(c, c.num_outputs()));
    Result<CheckpointReader> reader = CheckpointReader::Open(names.prefix);
    if (reader.status().code() == Code::kNotFound)
      return NotFound(reader.status().message() + kSharedFolder);
    MG_RETURN_IF_ERROR(reader.status());
    for (int i = 0; i < c.num_outputs(); ++i) {
      const std::string& name = names.names[i];
      MG_ASSIGN_OR_RETURN(const CheckpointReader::Entry entry, reader->Find(name));
      if (entry.dtype != c.output_dtype(i)) {
        return InvalidArgument("'" + name + "' in checkpoint '" + names.prefix + "' is " +
                               std::string(DTypeName(entry.dtype)) + ", not " +
                               std::string(DTypeName(c.output_dtype(i))));
      }
      const Result<RowRange> rows = ParseRows(names.slices[i], entry.shape);
      if (!rows.ok()) return rows.status().WithContext("'" + name + "'");
      Shape shape = entry.shape;
      if (rows->end >= 0) shape.set_dim(0, rows->end - rows->begin);
      MG_ASSIGN_OR_RETURN(Tensor * value, c.AllocateOutput(i, shape));
      MG_RETURN_IF_ERROR(reader->Read(name, *rows, value->raw(), stop));
    }
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<SaveKernel>({.op = "SaveV2"});
  registry->Add<RestoreKernel>({.op = "RestoreV2"});
}

}  // namespace monograph::ops::checkpoint
