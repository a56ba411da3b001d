// Variables of one step: each run of the node makes one of its own, which lives as long as its
// handle does.
#include <memory>
#include <string>
#include <utility>

#include "ops/variable/handle_cpu.h"
#include "ops/variable/variable_cpu.h"

namespace monograph::ops::variable {
namespace {

class TemporaryKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<TemporaryKernel>();
    const auto& shape = k.attr<PartialShape>("shape");
    if (!shape.fully_known())
      return InvalidArgument("a temporary variable needs a known shape, not " + shape.ToString());
    kernel->shape_ = shape.AsShape();
    kernel->device_ = k.device();
    kernel->dtype_ = k.attr<DType>("dtype");
    kernel->name_ = k.attr<std::string>("var_name");
    if (kernel->name_.empty()) kernel->name_ = k.node_name();
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor value, Tensor::Allocate(dtype_, shape_, c.allocator()));
    const auto variable = std::make_shared<Variable>(name_, dtype_, shape_, /*by_reference=*/true);
    {
      MutexLock lock(variable->mutex);
      variable->value = std::move(value);
    }
    return SetHandleOfRun(c, device_, "_temporary_variables", name_, variable);
  }

 private:
  std::string device_, name_;
  DType dtype_ = DT_INVALID;
  Shape shape_;
};

class DestroyTemporaryKernel : public Kernel {
 public:
  explicit DestroyTemporaryKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("T")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, dtype_));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    {
      MutexLock lock(variable->mutex, std::adopt_lock);
      MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
      c.set_output(0, std::move(variable->value));
    }
    const ResourceHandle& handle = *c.input(0).handles();
    c.resources().Delete(handle.container, handle.name);
    return Status();
  }

 private:
  const DType dtype_;
};

}  // namespace

void RegisterTemporaries(KernelRegistry* registry) {
  registry->Add<TemporaryKernel>({.op = "_TemporaryVariable", .host_args = {"resource"}});
  registry->Add<DestroyTemporaryKernel>(
      {.op = "_DestroyTemporaryVariable", .host_args = {"resource"}});
}

}  // namespace monograph::ops::variable
