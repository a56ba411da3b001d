// How kernels reach variables, and other resources, through their handles.
#pragma once

#include <memory>
#include <string>

#include "base/mutex.h"
#include "executor/kernel.h"
#include "executor/resource_manager.h"

namespace monograph::ops::variable {

// FailedPrecondition with TensorFlow's words, and what to do.
inline Status Uninitialized(const ResourceHandle& handle) {
  return FailedPrecondition("Error while reading resource variable " + handle.name +
                            " from Container: " + handle.container +
                            ". This could mean that the variable was uninitialized: run its "
                            "initializer first");
}

// The handle that a node with attributes `container` and `shared_name` gives out.
inline Result<Tensor> MakeHandle(const KernelConstruction& k) {
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DT_RESOURCE, Shape()));
  ResourceHandle* handle = tensor.handles();
  handle->device = k.device();
  handle->container = k.attrs().GetOr<std::string>("container", "");
  if (handle->container.empty()) handle->container = "localhost";
  handle->name = k.attrs().GetOr<std::string>("shared_name", "");
  if (handle->name.empty()) handle->name = k.node_name();
  return tensor;
}

inline Result<const ResourceHandle*> HandleOf(const KernelContext& c, int input) {
  const Tensor& tensor = c.input(input);
  if (tensor.dtype() != DT_RESOURCE || tensor.elements() != 1) {
    return InvalidArgument("input " + std::to_string(input) + " must be one resource handle");
  }
  const ResourceHandle* handle = tensor.handles();
  if (!handle->device.empty() && !c.device().empty() && handle->device != c.device()) {
    return InvalidArgument("Trying to access resource " + handle->name + " located in device " +
                           handle->device + " from device " + std::string(c.device()));
  }
  return handle;
}

// The variable behind a handle, which may be without a value still.
inline Result<std::shared_ptr<Variable>> FindVariable(const KernelContext& c, int input) {
  MG_ASSIGN_OR_RETURN(const ResourceHandle* handle, HandleOf(c, input));
  auto found = c.resources().Find<Variable>(handle->container, handle->name);
  if (!found.ok() && found.status().code() == Code::kNotFound) return Uninitialized(*handle);
  return found;
}

inline Status RequireType(const Variable& variable, DType dtype) {
  if (variable.dtype() == dtype) return Status();
  return InvalidArgument("variable '" + variable.name() + "' holds " +
                         std::string(DTypeName(variable.dtype())) + ", this op works on " +
                         std::string(DTypeName(dtype)));
}

// The variable behind input 0, of that type.
inline Result<std::shared_ptr<Variable>> FindTyped(const KernelContext& c, DType dtype) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<Variable> variable, FindVariable(c, 0));
  MG_RETURN_IF_ERROR(RequireType(*variable, dtype));
  return variable;
}

// Takes the variable's lock, to update or to read it. An update holds it while it computes: false
// on a thread that may not wait for that, whose kernel returns Busy().
inline bool LockToUpdate(const Variable& variable, const KernelContext& c)
    MG_TRY_ACQUIRE(true, variable.mutex) {
  if (variable.mutex.TryLock()) return true;
  if (!c.may_wait()) return false;
  variable.mutex.Lock();
  return true;
}
inline bool LockToRead(const Variable& variable, const KernelContext& c)
    MG_TRY_ACQUIRE_SHARED(true, variable.mutex) {
  if (variable.mutex.TryLockShared()) return true;
  if (!c.may_wait()) return false;
  variable.mutex.LockShared();
  return true;
}

// Whether an update of rows or slices is long (UpdateTarget): `updates` and `value` are numbers of
// elements.
inline bool IsLongUpdate(int64_t updates, int64_t value) {
  constexpr int64_t kLong = int64_t{1} << 23;  // some tens of milliseconds
  return updates >= kLong && updates / 4 >= value;
}

inline Status RequireValue(const Variable& variable, const KernelContext& c, int input)
    MG_REQUIRES_SHARED(variable.mutex) {
  if (variable.value.valid()) return Status();
  if (variable.by_reference())
    return FailedPrecondition("Attempting to use uninitialized value " + variable.name());
  return Uninitialized(*c.input(input).handles());
}

// Where an update writes: over the value itself if nobody else holds it, else into a new tensor
// that takes its place when it is Committed, so that snapshots which others read stay as they are.
// Of a variable that has a value, whose lock is held exclusively until the update is committed.
//
// A value is never changed in part. An update in place calls KernelContext::BeginChange before it
// writes, and another one before Commit: a step that is aborted meanwhile leaves the value as it
// was.
class UpdateTarget {
 public:
  // `long_update`: it takes much longer than a copy of the value, and writes to one, if there is
  // memory for it, so that it can be left at any time.
  static Result<UpdateTarget> Make(Tensor* value, KernelContext& c, bool long_update = false) {
    UpdateTarget target;
    target.value_ = value;
    if (long_update || !value->unique()) {
      auto fresh = Tensor::Allocate(value->dtype(), value->shape(), c.allocator()->kept());
      if (!fresh.ok() && !value->unique()) return fresh.status();
      if (fresh.ok()) target.fresh_ = std::move(fresh).value();
    }
    return target;
  }
  template <typename T>
  const T* before() const {
    return std::as_const(*value_).data<T>();
  }
  template <typename T>
  T* after() {
    return fresh_.valid() ? fresh_.data<T>() : value_->data<T>();
  }
  bool in_place() const { return !fresh_.valid(); }
  void Commit() {
    if (in_place()) return;
    if (fresh_.bytes() > PoolAllocator::kLarge)
      HostPool().SetHolderLike(fresh_.raw(), value_->raw());
    *value_ = std::move(fresh_);
  }

 private:
  Tensor* value_ = nullptr;  // the variable's
  Tensor fresh_;
};

}  // namespace monograph::ops::variable
