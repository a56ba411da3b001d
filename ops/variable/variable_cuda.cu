#include "ops/gather/rows_cuda.h"
#include "ops/gpu/on_host_cuda.h"
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
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, kDTypeOf<T>));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Tensor& delta = c.input(1);
    MG_RETURN_IF_ERROR(RequireShape(*variable, delta.shape()));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c));
    MG_RETURN_IF_ERROR(ForEach(
        c, delta.elements(),
        AssignUpdateBody<T>{target.before<T>(), delta.data<T>(), target.after<T>(), !kAdd}));
    target.Commit();
    return Status();
  }
};

struct DeviceRows {
  static Status Gather(KernelContext& c, const void* table, int64_t limit, size_t row,
                       const Tensor& indices, void* out) {
    const int64_t n = indices.elements();
    return gather::GatherRows(c, table, out, indices, row, n, n, 1, limit);
  }
};

// ResourceScatterAdd and ResourceScatterSub. Indices that name no row: ops/gather/rows_cuda.h.
template <typename T, bool kAdd>
struct DeviceSlices {
  using Moves = DeviceMoves;
  static constexpr bool kCutsLong = false;

  explicit DeviceSlices(const KernelConstruction&) {}
  DType dtype() const { return kDTypeOf<T>; }
  Status Check(const KernelContext& c, const Variable& variable) const
      MG_REQUIRES_SHARED(variable.mutex) {
    return CheckUpdates(variable, c.input(1).shape(), c.input(2).shape());
  }
  Status Apply(KernelContext& c, void* table, const Shape& shape) const {
    const Tensor& updates = c.input(2);
    return gather::AddRows<T>(c, static_cast<T*>(table), shape[0], ColumnsOf(shape), c.input(1),
                              updates.data<T>(), updates.shape().rank() == 0, !kAdd);
  }
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  registry->Add<AssignKernel<DeviceMoves, true>>(
      {.op = "AssignVariableOp", .device = kGpu, .host_args = {"resource"}});
#define ADD(T)                                                                          \
  registry->Add<DeviceAssignUpdateKernel<T, true>>({.op = "AssignAddVariableOp",        \
                                                    .device = kGpu,                     \
                                                    .types = {{"dtype", kDTypeOf<T>}},  \
                                                    .host_args = {"resource"}});        \
  registry->Add<DeviceAssignUpdateKernel<T, false>>({.op = "AssignSubVariableOp",       \
                                                     .device = kGpu,                    \
                                                     .types = {{"dtype", kDTypeOf<T>}}, \
                                                     .host_args = {"resource"}});       \
  for (DType index : {DT_INT32, DT_INT64}) {                                            \
    registry->Add<ScatterKernel<DeviceSlices<T, true>>>(                                \
        {.op = "ResourceScatterAdd",                                                    \
         .device = kGpu,                                                                \
         .types = {{"dtype", kDTypeOf<T>}, {"Tindices", index}},                        \
         .host_args = {"resource"}});                                                   \
    registry->Add<ScatterKernel<DeviceSlices<T, false>>>(                               \
        {.op = "ResourceScatterSub",                                                    \
         .device = kGpu,                                                                \
         .types = {{"dtype", kDTypeOf<T>}, {"Tindices", index}},                        \
         .host_args = {"resource"}});                                                   \
  }
  MG_NUMBER_TYPES(ADD)
#undef ADD
  for (DType index : {DT_INT32, DT_INT64}) {
    registry->Add<GatherKernel<DeviceRows>>({.op = "ResourceGather",
                                             .device = kGpu,
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
