// How kernels reach variables, and other resources, through their handles.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

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

// Takes the variable's lock, shared or exclusive. An update holds it while it computes: a thread
// that may not wait for that gets Busy, which is to be returned.
template <template <typename> typename Lock>
Status LockVariable(Lock<std::shared_mutex>* lock, const Variable& variable, KernelContext& c) {
  *lock = Lock<std::shared_mutex>(variable.mutex, std::try_to_lock);
  if (lock->owns_lock()) return Status();
  if (!c.may_wait()) return c.Busy();
  lock->lock();
  return Status();
}

// REQUIRES: the variable's lock is held, shared or exclusive.
inline Status RequireValue(const Variable& variable, const KernelContext& c, int input) {
  if (variable.value.valid()) return Status();
  return Uninitialized(*c.input(input).handles());
}

// Where an update writes: over the value itself if nobody else holds it, else into a new tensor
// that takes its place when it is Committed, so that snapshots which others read stay as they are.
// REQUIRES: the variable's lock is held exclusively, and it has a value.
class UpdateTarget {
 public:
  static Result<UpdateTarget> Make(Variable* variable, KernelContext& c) {
    UpdateTarget target;
    target.variable_ = variable;
    if (!variable->value.unique()) {
      MG_ASSIGN_OR_RETURN(target.fresh_, Tensor::Allocate(variable->value.dtype(),
                                                          variable->value.shape(), c.allocator()));
    }
    return target;
  }
  template <typename T>
  const T* before() const {
    return std::as_const(variable_->value).data<T>();
  }
  template <typename T>
  T* after() {
    return fresh_.valid() ? fresh_.data<T>() : variable_->value.data<T>();
  }
  void Commit() {
    if (fresh_.valid()) variable_->value = std::move(fresh_);
  }

 private:
  Variable* variable_ = nullptr;
  Tensor fresh_;
};

}  // namespace monograph::ops::variable
