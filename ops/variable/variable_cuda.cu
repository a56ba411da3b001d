#include "ops/gather/rows_cuda.h"
#include "ops/on_host_cuda.h"
#include "ops/variable/assign.h"

namespace monograph::ops::variable {

void RegisterCpu(KernelRegistry* registry);

namespace {

template <typename T>
struct AssignUpdateBody {
  const T *before, *delta;
  T* after;
  bool subtract;

  MG_HD void operator()(int64_t i) const {
    const auto x = Widen(before[i]), d = Widen(delta[i]);
    after[i] = Narrow<T>(static_cast<Accumulator<T>>(subtract ? x - d : x + d));
  }
};

template <typename T, bool kAdd>
class DeviceAssignUpdateKernel : public Kernel {
 public:
  explicit DeviceAssignUpdateKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, kDTypeOf<T>));
    const Tensor& delta = c.input(1);
    std::unique_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    MG_RETURN_IF_ERROR(RequireShape(*variable, delta.shape()));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(variable.get(), c));
    MG_RETURN_IF_ERROR(ForEach(
        c, delta.elements(),
        AssignUpdateBody<T>{target.before<T>(), delta.data<T>(), target.after<T>(), !kAdd}));
    target.Commit();
    return Status();
  }
};

class DeviceResourceGatherKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    if (k.attrs().GetOr<int64_t>("batch_dims", 0) != 0)
      return Unimplemented("ResourceGather with batch_dims is not supported; batch_dims must be 0");
    auto kernel = std::make_unique<DeviceResourceGatherKernel>();
    kernel->dtype_ = k.attr<DType>("dtype");
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, dtype_));
    std::shared_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Tensor& value = variable->value;
    const Tensor& indices = c.input(1);
    MG_ASSIGN_OR_RETURN(const Shape out_shape, GatheredShape(*variable, indices.shape()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, out_shape));
    const int64_t limit = value.shape()[0], n = indices.elements();
    const size_t row = n == 0 ? 0 : out->bytes() / static_cast<size_t>(n);
    return gather::GatherRows(c, value.raw(), out->raw(), indices, row, n, n, 1, limit);
  }

 private:
  DType dtype_ = DT_INVALID;
};

template <typename T, bool kAdd>
class DeviceScatterKernel : public Kernel {
 public:
  explicit DeviceScatterKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, kDTypeOf<T>));
    const Tensor &indices = c.input(1), &updates = c.input(2);
    std::unique_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Shape shape = variable->value.shape();
    MG_RETURN_IF_ERROR(CheckUpdates(*variable, indices.shape(), updates.shape()));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(variable.get(), c));
    T* after = target.after<T>();
    MG_RETURN_IF_ERROR(DeviceCopy(c, after, target.before<T>(), variable->value.bytes()));
    const int64_t columns = shape[0] == 0 ? 0 : shape.elements() / shape[0];
    MG_RETURN_IF_ERROR(gather::AddRows<T>(c, after, shape[0], columns, indices, updates.data<T>(),
                                          updates.shape().rank() == 0, !kAdd));
    target.Commit();
    return Status();
  }
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  registry->Add<AssignKernel<DeviceMoves>>(
      {.op = "AssignVariableOp", .device = "GPU", .host_args = {"resource"}});
#define ADD(T)                                                                          \
  registry->Add<DeviceAssignUpdateKernel<T, true>>({.op = "AssignAddVariableOp",        \
                                                    .device = "GPU",                    \
                                                    .types = {{"dtype", kDTypeOf<T>}},  \
                                                    .host_args = {"resource"}});        \
  registry->Add<DeviceAssignUpdateKernel<T, false>>({.op = "AssignSubVariableOp",       \
                                                     .device = "GPU",                   \
                                                     .types = {{"dtype", kDTypeOf<T>}}, \
                                                     .host_args = {"resource"}});       \
  for (DType index : {DT_INT32, DT_INT64}) {                                            \
    registry->Add<DeviceScatterKernel<T, true>>(                                        \
        {.op = "ResourceScatterAdd",                                                    \
         .device = "GPU",                                                               \
         .types = {{"dtype", kDTypeOf<T>}, {"Tindices", index}},                        \
         .host_args = {"resource"}});                                                   \
    registry->Add<DeviceScatterKernel<T, false>>(                                       \
        {.op = "ResourceScatterSub",                                                    \
         .device = "GPU",                                                               \
         .types = {{"dtype", kDTypeOf<T>}, {"Tindices", index}},                        \
         .host_args = {"resource"}});                                                   \
  }
  MG_NUMBER_TYPES(ADD)
#undef ADD
  for (DType index : {DT_INT32, DT_INT64}) {
    registry->Add<DeviceResourceGatherKernel>({.op = "ResourceGather",
                                               .device = "GPU",
                                               .types = {{"Tindices", index}},
                                               .host_args = {"resource"}});
  }
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  for (const char* op : {"VarHandleOp", "ReadVariableOp", "DestroyResourceOp", "VariableShape"})
    AddOnHost(registry, cpu, op);
  AddOnHost(registry, cpu, "VarIsInitializedOp", {"is_initialized"});
}

}  // namespace monograph::ops::variable
