// ResourceStridedSliceAssign: writes over a slice of a variable.
#include "ops/slice/slice_kernels.h"
#include "ops/variable/access_cpu.h"
#include "ops/variable/variable_cpu.h"

namespace monograph::ops::variable {
namespace {

class StridedAssignKernel : public slice::StridedSliceBase {
 public:
  using StridedSliceBase::StridedSliceBase;

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const Tensor& part = c.input(4);
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, part.dtype()));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Shape shape = variable->value.shape();
    MG_ASSIGN_OR_RETURN(const slice::StridedSlicePlan plan, Plan(c, shape));
    MG_RETURN_IF_ERROR(CheckPart(plan, shape, part, "value"));
    const size_t bytes = variable->value.bytes();
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c));
    const char* before = target.before<char>();
    char* after = target.after<char>();
    if (target.in_place()) {
      MG_RETURN_IF_ERROR(c.BeginChange());
    } else {
      MG_RETURN_IF_ERROR(HostMoves::Copy(c, after, before, bytes));
    }
    MG_RETURN_IF_ERROR(Put<HostMoves>(c, plan, shape, part, after));
    MG_RETURN_IF_ERROR(c.BeginChange());
    target.Commit();
    return Status();
  }
};

}  // namespace

void RegisterStridedAssign(KernelRegistry* registry) {
  AddForPlainTypes<StridedAssignKernel>(
      registry,
      {.op = "ResourceStridedSliceAssign", .host_args = {"ref", "begin", "end", "strides"}});
}

}  // namespace monograph::ops::variable
