// A stack is found by the name in its handle, as any resource, and lives as long as the handle
// does.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/room_cpu.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::stack {
namespace {

using variable::FindResource;

class StackResource : public Resource {
 public:
  StackResource(std::string name, DType dtype, int64_t max_size)
      : name_(std::move(name)), dtype_(dtype), max_size_(max_size) {}

  Status Push(const Tensor& tensor) {
    if (tensor.dtype() != dtype_) {
      return Wrong("holds " + std::string(DTypeName(dtype_)) + ", not " +
                   std::string(DTypeName(tensor.dtype())));
    }
    MutexLock lock(mutex_);
    if (closed_) return Wrong("has already been closed.");
    if (max_size_ >= 0 && static_cast<int64_t>(tensors_.size()) >= max_size_)
      return Wrong("overflowed its max_size (" + std::to_string(max_size_) + ")");
    MG_RETURN_IF_ERROR(room_.Hold(2 * (tensors_.size() + 1) * sizeof(Tensor), name_));
    tensors_.push_back(tensor);
    return Status();
  }
  Result<Tensor> Pop() {
    MutexLock lock(mutex_);
    if (closed_) return Wrong("has already been closed.");
    if (tensors_.empty()) return Wrong("is empty when calling Pop().");
    Tensor last = std::move(tensors_.back());
    tensors_.pop_back();
    return last;
  }
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    tensors_.clear();
  }
  std::string DebugString() const override { return "stack " + name_; }

 private:
  // As TensorFlow says it.
  Status Wrong(const std::string& what) const {
    return InvalidArgument("Stack[" + name_ + "] " + what);
  }

  const std::string name_;
  const DType dtype_;
  const int64_t max_size_;
  Mutex mutex_;
  Room room_ MG_GUARDED_BY(mutex_);  // of the vector
  std::vector<Tensor> tensors_ MG_GUARDED_BY(mutex_);
  bool closed_ MG_GUARDED_BY(mutex_) = false;
};

class StackKernel : public Kernel {
 public:
  explicit StackKernel(const KernelConstruction& k)
      : device_(k.device()), name_(k.node_name()), dtype_(k.attr<DType>("elem_type")) {}

  Status Compute(KernelContext& c) override {
    int64_t max_size = -1;
    if (c.num_inputs() > 0) {
      MG_ASSIGN_OR_RETURN(max_size, IntOf(c.input(0), "max_size"));
    }
    const auto stack = std::make_shared<StackResource>(name_, dtype_, max_size);
    return variable::SetHandleOfRun(c, device_, "_stacks", name_, stack);
  }

 private:
  const std::string device_, name_;
  const DType dtype_;
};

class PushKernel : public Kernel {
 public:
  explicit PushKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<StackResource> stack, FindResource<StackResource>(c));
    MG_RETURN_IF_ERROR(stack->Push(c.input(1)));
    c.set_output(0, c.input(1));
    return Status();
  }
};

class PopKernel : public Kernel {
 public:
  explicit PopKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<StackResource> stack, FindResource<StackResource>(c));
    MG_ASSIGN_OR_RETURN(Tensor tensor, stack->Pop());
    c.set_output(0, std::move(tensor));
    return Status();
  }
};

class CloseKernel : public Kernel {
 public:
  explicit CloseKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<StackResource> stack, FindResource<StackResource>(c));
    stack->Close();
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  using variable::AddHandleKernel;
  AddHandleKernel<StackKernel>(registry, "StackV2");
  AddHandleKernel<StackKernel>(registry, "_Stack");
  AddHandleKernel<PushKernel>(registry, "StackPushV2");
  AddHandleKernel<PopKernel>(registry, "StackPopV2");
  AddHandleKernel<CloseKernel>(registry, "StackCloseV2");
}

}  // namespace monograph::ops::stack
