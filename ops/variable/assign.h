// AssignVariableOp's kernel, for any device (ops/moves.h), and what updates of variables ask of
// shapes.
#pragma once

#include "ops/moves.h"
#include "ops/variable/access_cpu.h"

namespace monograph::ops::variable {

template <typename Moves>
class AssignKernel : public Kernel {
 public:
  explicit AssignKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("dtype")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindVariable(c, 0));
    MG_RETURN_IF_ERROR(RequireType(*variable, dtype_));
    if (!variable->shape().Accepts(c.input(1).shape())) {
      return InvalidArgument("variable '" + variable->name() + "' has shape " +
                             variable->shape().ToString() + "; a value of shape " +
                             c.input(1).shape().ToString() + " cannot be assigned to it");
    }
    Tensor value;
    // A small view must not keep a large buffer alive.
    if (const Tensor& given = c.input(1);
        IsPlainData(given.dtype()) && given.buffer().size() > 2 * given.bytes() + 4096) {
      MG_ASSIGN_OR_RETURN(value, Tensor::Allocate(given.dtype(), given.shape(), c.allocator()));
      MG_RETURN_IF_ERROR(Moves::Copy(c, value.raw(), given.raw(), given.bytes()));
    }
    std::unique_lock<std::shared_mutex> lock;
    MG_RETURN_IF_ERROR(LockVariable(&lock, *variable, c));
    if (!value.valid()) value = c.TakeInput(1);
    std::swap(variable->value, value);
    lock.unlock();  // the old value is freed outside
    return Status();
  }

 private:
  const DType dtype_;
};

// The functions below: REQUIRES: the variable's lock is held, and it has a value.

inline Status RequireShape(const Variable& variable, const Shape& delta) {
  if (variable.value.shape() == delta) return Status();
  return InvalidArgument("variable '" + variable.name() + "' of shape " +
                         variable.value.shape().ToString() +
                         " cannot be updated by a value of shape " + delta.ToString());
}

// Of the rows that `indices` name.
inline Result<Shape> GatheredShape(const Variable& variable, const Shape& indices) {
  const Shape shape = variable.value.shape();
  if (shape.rank() < 1 || !IsPlainData(variable.dtype()))
    return InvalidArgument("variable '" + variable.name() + "' has no rows to gather");
  if (shape.rank() - 1 + indices.rank() > kMaxRank)
    return InvalidArgument("the result has too many dimensions");
  Shape out = indices;
  for (int i = 1; i < shape.rank(); ++i) out.AddDim(shape[i]);
  return out;
}

// Updates are a row for each index, or one scalar for all of them.
inline Status CheckUpdates(const Variable& variable, const Shape& indices, const Shape& updates) {
  const Shape shape = variable.value.shape();
  if (shape.rank() < 1)
    return InvalidArgument("variable '" + variable.name() + "' has no rows to update");
  Shape wanted = indices;
  const bool fits = shape.rank() - 1 + wanted.rank() <= kMaxRank;
  for (int i = 1; i < shape.rank() && fits; ++i) wanted.AddDim(shape[i]);
  if (updates.rank() == 0 || (fits && updates == wanted)) return Status();
  return InvalidArgument("updates of shape " + updates.ToString() +
                         " do not fit indices of shape " + indices.ToString() + " and variable '" +
                         variable.name() + "' of shape " + shape.ToString());
}

}  // namespace monograph::ops::variable
