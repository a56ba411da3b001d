// Kernels of variables for any device: moves are those of ops/gpu/moves.h, `Rows` reads rows that
// indices name, and `Slices` changes them. What updates of variables ask of shapes.
#pragma once

#include <algorithm>

#include "graph/references.h"
#include "ops/gpu/moves.h"
#include "ops/variable/access_cpu.h"

namespace monograph::ops::variable {

// kKeepsPlaces: a small value is copied to the variable's present address.
template <typename Moves, bool kKeepsPlaces>
class AssignKernel : public Kernel {
 public:
  explicit AssignKernel(const KernelConstruction& k)
      : dtype_(k.attr<DType>("dtype")), fit_(FitOf(k.attrs())) {}

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, dtype_));
    if (fit_ != Fit::kAny && !variable->shape().Accepts(c.input(1).shape())) {
      if (fit_ == Fit::kSame) return ShapesDiffer(variable->shape().ToString(), c.input(1).shape());
      return InvalidArgument("variable '" + variable->name() + "' has shape " +
                             variable->shape().ToString() + "; a value of shape " +
                             c.input(1).shape().ToString() + " cannot be assigned to it");
    }
    Tensor value;  // the new one, then the old one, which is freed without the lock
    // A small view must not keep a large buffer alive.
    if (const Tensor& given = c.input(1);
        IsPlainData(given.dtype()) && given.buffer().size() > 2 * given.bytes() + 4096) {
      MG_ASSIGN_OR_RETURN(value, Tensor::Allocate(given.dtype(), given.shape(), c.allocator()));
      MG_RETURN_IF_ERROR(Moves::Copy(c, value.raw(), given.raw(), given.bytes()));
    }
    MG_RETURN_IF_ERROR(c.BeginChange());
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    if (fit_ == Fit::kSame && variable->value.valid() &&
        !(variable->value.shape() == c.input(1).shape()))
      return ShapesDiffer(variable->value.shape().ToString(), c.input(1).shape());
    if (kKeepsPlaces && Stays(variable->value, c.input(1)))
      return Moves::Copy(c, variable->value.raw(), c.input(1).raw(), c.input(1).bytes());
    if (!value.valid()) value = c.TakeInput(1);
    std::swap(variable->value, value);
    variable->HoldValue();
    return Status();
  }

 private:
  // What the value's shape must fit: what the variable is declared as, or (by reference) also the
  // present value, or nothing.
  enum class Fit : uint8_t { kDeclared, kSame, kAny };
  static Fit FitOf(const Attrs& attrs) {
    if (!attrs.GetOr<bool>(kByReference, false)) return Fit::kDeclared;
    return attrs.GetOr<bool>("validate_shape", true) ? Fit::kSame : Fit::kAny;
  }
  static Status ShapesDiffer(const std::string& variable, const Shape& value) {
    return InvalidArgument("Assign requires shapes of both tensors to match. lhs shape= " +
                           variable + " rhs shape= " + value.ToString());
  }

  // A CUDA graph is replayed as long as its variables stay where they are: a small one that every
  // step assigns, such as a power of Adam's, is worth a copy.
  static constexpr size_t kWorthACopy = 4096;
  static bool Stays(const Tensor& old, const Tensor& given) {
    return old.valid() && old.unique() && old.dtype() == given.dtype() &&
           old.shape() == given.shape() && IsPlainData(given.dtype()) &&
           given.bytes() <= kWorthACopy;
  }

  const DType dtype_;
  const Fit fit_;
};

// What is asked of a variable that has a value.

inline Status RequireShape(const Variable& variable, const Shape& delta)
    MG_REQUIRES_SHARED(variable.mutex) {
  if (variable.value.shape() == delta) return Status();
  return InvalidArgument("variable '" + variable.name() + "' of shape " +
                         variable.value.shape().ToString() +
                         " cannot be updated by a value of shape " + delta.ToString());
}

// Of the rows that `indices` name.
inline Result<Shape> GatheredShape(const Variable& variable, const Shape& indices)
    MG_REQUIRES_SHARED(variable.mutex) {
  const Shape shape = variable.value.shape();
  if (shape.rank() < 1 || !IsPlainData(variable.dtype()))
    return InvalidArgument("variable '" + variable.name() + "' has no rows to gather");
  if (shape.rank() - 1 + indices.rank() > kMaxRank)
    return InvalidArgument("the result has too many dimensions");
  Shape out = indices;
  for (int i = 1; i < shape.rank(); ++i) out.AddDim(shape[i]);
  return out;
}

// Elements of one row of a table.
inline int64_t ColumnsOf(const Shape& table) {
  return table[0] == 0 ? 0 : table.elements() / table[0];
}

// Updates are a row for each index, or one scalar for all of them.
inline Status CheckUpdates(const Variable& variable, const Shape& indices, const Shape& updates)
    MG_REQUIRES_SHARED(variable.mutex) {
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

// ResourceGather. Rows::Gather(c, table, limit, row_bytes, indices, out).
template <typename Rows>
class GatherKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    if (k.attrs().GetOr<int64_t>("batch_dims", 0) != 0)
      return Unimplemented("ResourceGather with batch_dims is not supported; batch_dims must be 0");
    auto kernel = std::make_unique<GatherKernel>();
    kernel->dtype_ = k.attr<DType>("dtype");
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<const Variable> found, FindTyped(c, dtype_));
    const Variable& variable = *found;
    // Held to the end: a snapshot would make the next update copy the whole table.
    if (!LockToRead(variable, c)) return c.Busy();
    ReaderLock lock(variable.mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(variable, c, 0));
    const Tensor &value = variable.value, &indices = c.input(1);
    MG_ASSIGN_OR_RETURN(const Shape shape, GatheredShape(variable, indices.shape()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const auto n = static_cast<size_t>(indices.elements());
    return Rows::Gather(c, value.raw(), value.shape()[0], n == 0 ? 0 : out->bytes() / n, indices,
                        out->raw());
  }

 private:
  DType dtype_ = DT_INVALID;
};

// ResourceScatter*: changes slices of a variable that indices name. Slices, made from the node, has
//   Moves                    as in ops/gpu/moves.h
//   dtype()                  the variable's
//   kCutsLong                whether Apply looks at cancellation
//   Check(c, variable)       whether indices and updates fit the variable
//   Apply(c, table, shape)   changes them in `table`, which holds a value of that shape
template <typename Slices>
class ScatterKernel : public Kernel {
 public:
  explicit ScatterKernel(const KernelConstruction& k) : slices_(k) {}

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<Variable> variable, FindTyped(c, slices_.dtype()));
    if (!LockToUpdate(*variable, c)) return c.Busy();
    MutexLock lock(variable->mutex, std::adopt_lock);
    MG_RETURN_IF_ERROR(RequireValue(*variable, c, 0));
    const Shape shape = variable->value.shape();
    const size_t bytes = variable->value.bytes();
    MG_RETURN_IF_ERROR(slices_.Check(c, *variable));
    const bool is_long =
        Slices::kCutsLong && IsLongUpdate(std::max(c.input(1).elements(), c.input(2).elements()),
                                          variable->value.elements());
    MG_ASSIGN_OR_RETURN(UpdateTarget target, UpdateTarget::Make(&variable->value, c, is_long));
    const char* before = target.before<char>();
    char* after = target.after<char>();
    if (target.in_place()) {
      MG_RETURN_IF_ERROR(c.BeginChange());
    } else {
      MG_RETURN_IF_ERROR(Slices::Moves::Copy(c, after, before, bytes));
    }
    MG_RETURN_IF_ERROR(slices_.Apply(c, after, shape));
    MG_RETURN_IF_ERROR(c.BeginChange());
    target.Commit();
    return Status();
  }

 private:
  const Slices slices_;
};

}  // namespace monograph::ops::variable
