#include <cstring>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "ops/float_view_cpu.h"
#include "ops/variable/access_cpu.h"
#include "ops/variable/assign.h"

namespace monograph::ops::variable {
namespace {

class VarHandleKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<VarHandleKernel>();
    kernel->node_ = k.node_name();
    kernel->dtype_ = k.attr<DType>("dtype");
    kernel->shape_ = k.attrs().GetOr<PartialShape>("shape", PartialShape());
    MG_ASSIGN_OR_RETURN(kernel->handle_, MakeHandle(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    const ResourceHandle& handle = *std::as_const(handle_).handles();
    auto found = c.resources().Find<Variable>(handle.container, handle.name);
    if (!found.ok() && found.status().code() == Code::kNotFound) {
      found = c.resources().FindOrCreate<Variable>(handle.container, handle.name, [&] {
        return std::make_shared<Variable>(handle.name, dtype_, shape_);
      });
    }
    if (!found.ok()) return found.status();
    const Variable& variable = **found;
    if (variable.dtype() != dtype_ || !PartialShape::Merge(variable.shape(), shape_).ok()) {
      return FailedPrecondition(
          "node '" + node_ + "' defines variable '" + handle.container + "/" + handle.name +
          "' as " + std::string(DTypeName(dtype_)) + shape_.ToString() + ", but it exists as " +
          std::string(DTypeName(variable.dtype())) + variable.shape().ToString() +
          "; give one of them another shared_name or container, or clear the container");
    }
    c.set_output(0, handle_);
    return Status();
  }

 private:
  std::string node_;
  DType dtype_ = DT_INVALID;
  PartialShape shape_;
  Tensor handle_;
};

class ReadKernel : public Kernel {
 public:
  explicit ReadKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("dtype")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, dtype_));
    std::shared_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    c.set_output(0, variable->value);
    return Status();
  }

 private:
  const DType dtype_;
};

template <typename T, bool kAdd>
class AssignUpdateKernel : public Kernel {
 public:
  explicit AssignUpdateKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, kDTypeOf<T>));
    const Tensor& delta = c.input(1);
    std::unique_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    MG_RETURN_IF_ERROR(RequireShape(*variable, delta.shape()));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(variable.get(), c));
    const T *before = target.before<T>(), *d = delta.data<T>();
    T* after = target.after<T>();
    constexpr int64_t kBlock = 16384;
    const int64_t n = delta.elements();
    const auto body = [&](int64_t begin, int64_t end) {
      const int64_t last = std::min(n, end * kBlock);
      for (int64_t i = begin * kBlock; i < last; ++i)
        after[i] = kAdd ? T(before[i] + d[i]) : T(before[i] - d[i]);
    };
    c.ParallelFor((n + kBlock - 1) / kBlock, 6000, std::ref(body));
    target.Commit();
    return Status();
  }
};

template <typename T>
class CountUpToKernel : public Kernel {
 public:
  explicit CountUpToKernel(const KernelConstruction& k) : limit_(k.attr<int64_t>("limit")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, kDTypeOf<T>));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
    std::unique_lock lock(variable->mutex);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    if (variable->value.elements() != 1) {
      return InvalidArgument("variable '" + variable->name() + "' of shape " +
                             variable->value.shape().ToString() + " is no scalar to count with");
    }
    const T before = *std::as_const(variable->value).template data<T>();
    if (static_cast<int64_t>(before) >= limit_)
      return OutOfRange("Reached limit of " + std::to_string(limit_));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(variable.get(), c));
    *target.after<T>() = static_cast<T>(before + 1);
    target.Commit();
    *out->data<T>() = before;
    return Status();
  }

 private:
  const int64_t limit_;
};

class IsInitializedKernel : public Kernel {
 public:
  explicit IsInitializedKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ResourceHandle* handle, HandleOf(c, 0));
    auto found = c.resources().Find<Variable>(handle->container, handle->name);
    if (!found.ok() && found.status().code() != Code::kNotFound) return found.status();
    bool initialized = false;
    if (found.ok()) {
      std::shared_lock<std::shared_mutex> lock;
      MG_RETURN_IF_ERROR(LockVariable(&lock, **found, c));
      initialized = (*found)->value.valid();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
    *out->data<bool>() = initialized;
    return Status();
  }
};

template <typename T>
class VariableShapeKernel : public Kernel {
 public:
  explicit VariableShapeKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    std::shared_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Shape shape = variable->value.shape();
    lock.unlock();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{shape.rank()}));
    for (int i = 0; i < shape.rank(); ++i) out->data<T>()[i] = static_cast<T>(shape[i]);
    return Status();
  }
};

template <typename I>
class ResourceGatherKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    if (k.attrs().GetOr<int64_t>("batch_dims", 0) != 0)
      return Unimplemented("ResourceGather with batch_dims is not supported; batch_dims must be 0");
    auto kernel = std::make_unique<ResourceGatherKernel>();
    kernel->dtype_ = k.attr<DType>("dtype");
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, dtype_));
    // Under the lock to the end: a snapshot would make the next update copy the whole table.
    std::shared_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Tensor& value = variable->value;
    const Tensor& indices = c.input(1);
    const Shape shape = value.shape();
    MG_ASSIGN_OR_RETURN(const Shape out_shape, GatheredShape(*variable, indices.shape()));
    const I* index = indices.data<I>();
    const int64_t n = indices.elements();
    for (int64_t i = 0; i < n; ++i) {
      if (index[i] >= 0 && index[i] < shape[0]) continue;
      return InvalidArgument("indices[" + std::to_string(i) + "] = " + std::to_string(index[i]) +
                             " is not in [0, " + std::to_string(shape[0]) + ")");
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, out_shape));
    const size_t row = shape[0] == 0 ? 0 : value.bytes() / static_cast<size_t>(shape[0]);
    const char* from = static_cast<const char*>(std::as_const(value).raw());
    char* to = static_cast<char*>(out->raw());
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + static_cast<size_t>(i) * row, from + static_cast<size_t>(index[i]) * row,
                  row);
    return Status();
  }

 private:
  DType dtype_ = DT_INVALID;
};

template <typename T, typename I, bool kAdd>
class ResourceScatterKernel : public Kernel {
 public:
  explicit ResourceScatterKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, kDTypeOf<T>));
    const Tensor &indices = c.input(1), &updates = c.input(2);
    std::unique_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Shape shape = variable->value.shape();
    MG_RETURN_IF_ERROR(CheckUpdates(*variable, indices.shape(), updates.shape()));
    const bool scalar = updates.shape().rank() == 0;
    const I* index = indices.data<I>();
    const int64_t n = indices.elements();
    for (int64_t i = 0; i < n; ++i) {
      if (index[i] >= 0 && index[i] < shape[0]) continue;
      return InvalidArgument("indices[" + std::to_string(i) + "] = " + std::to_string(index[i]) +
                             " is not in [0, " + std::to_string(shape[0]) + ")");
    }
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(variable.get(), c));
    const T* before = target.before<T>();
    T* after = target.after<T>();
    if (after != before && variable->value.bytes() > 0)
      std::memcpy(after, before, variable->value.bytes());
    const T* update = updates.data<T>();
    const int64_t row = shape[0] == 0 ? 0 : shape.elements() / shape[0];
    for (int64_t i = 0; i < n; ++i) {
      T* to = after + static_cast<int64_t>(index[i]) * row;
      const T* from = scalar ? update : update + i * row;
      for (int64_t k = 0; k < row; ++k) {
        const T& change = from[scalar ? 0 : k];
        to[k] = kAdd ? T(to[k] + change) : T(to[k] - change);
      }
    }
    target.Commit();
    return Status();
  }
};

class DestroyKernel : public Kernel {
 public:
  explicit DestroyKernel(const KernelConstruction& k)
      : ignore_(k.attrs().GetOr<bool>("ignore_lookup_error", true)) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ResourceHandle* handle, HandleOf(c, 0));
    if (!ignore_) {
      if (auto found = c.resources().Find<Resource>(handle->container, handle->name); !found.ok())
        return found.status();
    }
    c.resources().Delete(handle->container, handle->name);
    return Status();
  }

 private:
  const bool ignore_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<VarHandleKernel>(
      {.op = "VarHandleOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<ReadKernel>(
      {.op = "ReadVariableOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<AssignKernel<HostMoves>>(
      {.op = "AssignVariableOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<IsInitializedKernel>(
      {.op = "VarIsInitializedOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<DestroyKernel>(
      {.op = "DestroyResourceOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
#define ADD(T)                                                                    \
  registry->Add<AssignUpdateKernel<T, true>>({.op = "AssignAddVariableOp",        \
                                              .types = {{"dtype", kDTypeOf<T>}},  \
                                              .host_args = {"resource"}});        \
  registry->Add<AssignUpdateKernel<T, false>>({.op = "AssignSubVariableOp",       \
                                               .types = {{"dtype", kDTypeOf<T>}}, \
                                               .host_args = {"resource"}});
  MG_NUMBER_TYPES(ADD)
#undef ADD
#define ADD(T)                                                                 \
  registry->Add<CountUpToKernel<T>>({.op = "ResourceCountUpTo",                \
                                     .types = {{"T", kDTypeOf<T>}},            \
                                     .host_args = {"resource", "output"},      \
                                     .cost = KernelCost::kCheap});             \
  registry->Add<VariableShapeKernel<T>>({.op = "VariableShape",                \
                                         .types = {{"out_type", kDTypeOf<T>}}, \
                                         .host_args = {"input", "output"},     \
                                         .cost = KernelCost::kCheap});         \
  registry->Add<ResourceGatherKernel<T>>(                                      \
      {.op = "ResourceGather", .types = {{"Tindices", kDTypeOf<T>}}, .host_args = {"resource"}});
  MG_INDEX_TYPES(ADD)
#undef ADD
#define ADD_ONE(NAME, T, I, ADDS)                                    \
  registry->Add<ResourceScatterKernel<T, I, ADDS>>(                  \
      {.op = NAME,                                                   \
       .types = {{"dtype", kDTypeOf<T>}, {"Tindices", kDTypeOf<I>}}, \
       .host_args = {"resource"}});
#define ADD(T)                                     \
  ADD_ONE("ResourceScatterAdd", T, int32_t, true)  \
  ADD_ONE("ResourceScatterAdd", T, int64_t, true)  \
  ADD_ONE("ResourceScatterSub", T, int32_t, false) \
  ADD_ONE("ResourceScatterSub", T, int64_t, false)
  MG_NUMBER_TYPES(ADD)
#undef ADD
#undef ADD_ONE
}

}  // namespace monograph::ops::variable
