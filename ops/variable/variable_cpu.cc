// CPU kernels of variables. A read gives out the variable's tensor itself, without a copy, under a
// shared lock. An update takes the lock exclusively and writes in place only if nobody else holds
// the tensor; otherwise it writes a new one (UpdateTarget), so that a value that was read never
// changes. What is the same on a GPU is in assign.h.
#include "ops/variable/variable_cpu.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "base/complex.h"
#include "ops/check_indices.h"
#include "ops/cpu/float_view_cpu.h"
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
    kernel->by_reference_ = k.attrs().GetOr<bool>(kByReference, false);
    MG_ASSIGN_OR_RETURN(kernel->handle_, MakeHandle(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    const ResourceHandle& handle = *std::as_const(handle_).handles();
    auto found = c.resources().Find<Variable>(handle.container, handle.name);
    if (!found.ok() && found.status().code() == Code::kNotFound) {
      found = c.resources().FindOrCreate<Variable>(handle.container, handle.name, [&] {
        return std::make_shared<Variable>(handle.name, dtype_, shape_, by_reference_);
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
  bool by_reference_ = false;
  Tensor handle_;
};

class HandleStringsKernel : public Kernel {
 public:
  explicit HandleStringsKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ResourceHandle* handle, HandleOf(c, 0));
    MG_ASSIGN_OR_RETURN(Tensor * strings, c.AllocateOutput(0, Shape{2}));
    strings->strings()[0] = handle->container;
    strings->strings()[1] = handle->name;
    return Status();
  }
};

class ReadKernel : public Kernel {
 public:
  explicit ReadKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("dtype")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, dtype_));
    if (!LockToRead(*variable, c)) return c.Busy();
    ReaderLock lock(variable->mutex, std::adopt_lock);
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
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, kDTypeOf<T>));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Tensor& delta = c.input(1);
    MG_RETURN_IF_ERROR(RequireShape(*variable, delta.shape()));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c));
    if (target.in_place()) MG_RETURN_IF_ERROR(c.BeginChange());
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
    MG_RETURN_IF_ERROR(c.BeginChange());
    target.Commit();
    return Status();
  }
};

template <typename T>
class CountUpToKernel : public Kernel {
 public:
  explicit CountUpToKernel(const KernelConstruction& k) : limit_(k.attr<int64_t>("limit")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, kDTypeOf<T>));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
    MutexLock lock(variable->mutex);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    if (variable->value.elements() != 1) {
      return InvalidArgument("variable '" + variable->name() + "' of shape " +
                             variable->value.shape().ToString() + " is no scalar to count with");
    }
    const T before = *std::as_const(variable->value).template data<T>();
    if (static_cast<int64_t>(before) >= limit_)
      return OutOfRange("Reached limit of " + std::to_string(limit_));
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c));
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
      const Variable& variable = **found;
      if (!LockToRead(variable, c)) return c.Busy();
      ReaderLock lock(variable.mutex, std::adopt_lock);
      initialized = variable.value.valid();
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
    if (!LockToRead(*variable, c)) return c.Busy();
    ReaderLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Shape shape = variable->value.shape();
    lock.Unlock();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{shape.rank()}));
    for (int i = 0; i < shape.rank(); ++i) out->data<T>()[i] = static_cast<T>(shape[i]);
    return Status();
  }
};

struct HostRows {
  static Status Gather(KernelContext& c, const void* table, int64_t limit, size_t row,
                       const Tensor& indices, void* out) {
    if (indices.dtype() == DT_INT32)
      return Copy(c, indices.values<int32_t>(), table, limit, row, out);
    return Copy(c, indices.values<int64_t>(), table, limit, row, out);
  }

 private:
  template <typename I>
  static Status Copy(KernelContext& c, std::span<const I> indices, const void* table, int64_t limit,
                     size_t row, void* out) {
    constexpr size_t kLongRow = size_t{1} << 20;  // is copied in pieces
    const auto rows =
        static_cast<int64_t>(std::max<size_t>(1, kLongRow / std::max<size_t>(1, row)));
    const char* from = static_cast<const char*>(table);
    char* to = static_cast<char*>(out);
    Status status;
    InPieces(c, static_cast<int64_t>(indices.size()), rows, [&](int64_t begin, int64_t end) {
      if (!status.ok()) return;
      const auto piece =
          indices.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      status = CheckIndices(piece, limit, "indices", begin);
      for (size_t i = 0; status.ok() && i < piece.size(); ++i, to += row) {
        const char* const at = from + static_cast<size_t>(piece[i]) * row;
        if (row > kLongRow) {
          status = HostMoves::Copy(c, to, at, row);
        } else {
          std::memcpy(to, at, row);
        }
      }
    });
    return status;
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
  RegisterScatters(registry);
  RegisterStridedAssign(registry);
  RegisterTemporaries(registry);
  registry->Add<VarHandleKernel>(
      {.op = "VarHandleOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<HandleStringsKernel>(
      {.op = "_HandleStrings", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<ReadKernel>(
      {.op = "ReadVariableOp", .host_args = {"resource"}, .cost = KernelCost::kCheap});
  registry->Add<AssignKernel<HostMoves, false>>(
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
  ADD(std::complex<float>)
  ADD(std::complex<double>)
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
  registry->Add<GatherKernel<HostRows>>(                                       \
      {.op = "ResourceGather", .types = {{"Tindices", kDTypeOf<T>}}, .host_args = {"resource"}});
  MG_INDEX_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::variable
