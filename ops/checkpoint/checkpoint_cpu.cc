// SaveV2, RestoreV2, MergeV2Checkpoints and ShardedFilename. FileKernel gives each call that
// touches files a thread of its own; the kernels check their inputs and call ops/checkpoint_files/
// there. A restore reads straight from the file into its outputs.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <list>
#include <memory>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "executor/kernel.h"
#include "ops/checkpoint_files/checkpoint_file.h"
#include "ops/checkpoint_files/checkpoint_index.h"
#include "ops/checkpoint_files/checkpoint_reader.h"
#include "ops/checkpoint_files/tensor_bundle.h"
#include "ops/checkpoint_files/tensor_slice.h"

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
    try {
      call.thread = StartThread("mg-file", [this, &c, stop, over = call.over, done] {
        done(Work(c, stop.get_token()));
        *over = true;  // the kernel may be gone
      });
    } catch (const std::system_error& error) {
      calls_.pop_back();
      lock.Unlock();  // `done` may destroy the kernel
      done(
          ResourceExhausted(std::string("no thread to read or write files with: ") + error.what()));
    }
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
  static constexpr int kFirst = 3;

  Status Work(KernelContext& c, const std::stop_token& stop) const override {
    MG_ASSIGN_OR_RETURN(const Names names, Names::Of(c, c.num_inputs() - kFirst));
    return IsCheckpointFileName(names.prefix) ? SaveFile(c, names, stop)
                                              : SaveBundle(c, names, stop);
  }

  static Status SaveFile(const KernelContext& c, const Names& names, const std::stop_token& stop) {
    std::vector<CheckpointTensor> tensors;
    for (int i = 0; i + kFirst < c.num_inputs(); ++i) {
      if (!names.slices[i].empty()) {
        return Unimplemented("'" + names.names[i] + "' is to be saved as the slice '" +
                             names.slices[i] +
                             "', which safetensors files do not have; save it "
                             "as a tensor of its own");
      }
      const Tensor& value = c.input(kFirst + i);
      tensors.push_back({names.names[i], value.dtype(), value.shape(), {value}});
    }
    const std::filesystem::path file = names.prefix;
    std::error_code error;
    if (file.has_parent_path() && !std::filesystem::is_directory(file.parent_path(), error)) {
      return FailedPrecondition("cannot write '" + file.string() + "': there is no folder '" +
                                file.parent_path().string() + "'" + kSharedFolder);
    }
    return WriteCheckpointFile(file.string(), tensors, stop);
  }

  static Status SaveBundle(const KernelContext& c, const Names& names,
                           const std::stop_token& stop) {
    std::vector<BundleTensor> tensors;
    for (int i = 0; i + kFirst < c.num_inputs(); ++i) {
      const Tensor& value = c.input(kFirst + i);
      const Result<ShapeAndSlice> part = ParseShapeAndSlice(names.slices[i]);
      if (!part.ok()) return part.status().WithContext("'" + names.names[i] + "'");
      tensors.push_back(
          {names.names[i], part->has_shape ? part->whole : value.shape(), part->slice, value});
    }
    MG_RETURN_IF_ERROR(WriteBundle(names.prefix, tensors, stop));
    RemoveSafetensors(names.prefix);
    return Status();
  }
};

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
      const Result<ShapeAndSlice> part = ParseShapeAndSlice(names.slices[i]);
      if (!part.ok()) return part.status().WithContext("'" + name + "'");
      if (part->has_shape && part->whole != entry.shape) {
        return InvalidArgument("'" + name + "': the slice '" + names.slices[i] +
                               "' is not of shape " + entry.shape.ToString());
      }
      MG_ASSIGN_OR_RETURN(const Box box, BoxOf(part->slice, entry.shape));
      MG_ASSIGN_OR_RETURN(Tensor * value, c.AllocateOutput(i, box.shape));
      MG_RETURN_IF_ERROR(reader->Read(name, box, value, stop));
    }
    return Status();
  }
};

class MergeKernel : public FileKernel {
 public:
  explicit MergeKernel(const KernelConstruction& c)
      : options_{c.attr<bool>("delete_old_dirs"), c.attr<bool>("allow_missing_files")} {}

 private:
  Status Work(KernelContext& c, const std::stop_token&) const override {
    if (c.input(1).elements() != 1) {
      return InvalidArgument("destination_prefix must be one string, not string" +
                             c.input(1).shape().ToString());
    }
    const std::string* const prefixes = c.input(0).strings();
    const std::string& destination = *c.input(1).strings();
    MG_RETURN_IF_ERROR(
        MergeBundles({prefixes, prefixes + c.input(0).elements()}, destination, options_));
    RemoveSafetensors(destination);
    return Status();
  }

  const MergeOptions options_;
};

class ShardedFilenameKernel : public Kernel {
 public:
  explicit ShardedFilenameKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    for (int i = 0; i < c.num_inputs(); ++i) {
      if (c.input(i).elements() != 1)
        return InvalidArgument("input " + std::to_string(i) + " must be a scalar, not " +
                               c.input(i).shape().ToString());
    }
    char tail[64];
    std::snprintf(tail, sizeof tail, "-%05d-of-%05d", *c.input(1).data<int32_t>(),
                  *c.input(2).data<int32_t>());
    MG_ASSIGN_OR_RETURN(Tensor * name, c.AllocateOutput(0, Shape()));
    *name->strings() = *c.input(0).strings() + tail;
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<SaveKernel>({.op = "SaveV2"});
  registry->Add<RestoreKernel>({.op = "RestoreV2"});
  registry->Add<MergeKernel>({.op = "MergeV2Checkpoints"});
  registry->Add<ShardedFilenameKernel>({.op = "ShardedFilename"});
}

}  // namespace monograph::ops::checkpoint
