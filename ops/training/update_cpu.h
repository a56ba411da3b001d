// What the kernels of optimizers share.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "ops/training/formulas.h"
#include "ops/variable/access_cpu.h"

namespace monograph::ops::training {

using variable::FindVariable;
using variable::LockToUpdate;
using variable::RequireType;
using variable::RequireValue;
using variable::UpdateTarget;

// Variables (`count` inputs, from `first` on) that an update holds exclusively. Locks are taken in
// the order of addresses, so that updates that name them in different orders cannot wait for each
// other. Clang does not follow locks in an array: what takes, uses and gives them back here is not
// analysed.
class Locked {
 public:
  static constexpr int kMost = 4;

  // Each must have the shape of the gradient.
  static Result<Locked> Make(KernelContext& c, int count, DType dtype, const Shape& gradient,
                             int first) {
    MG_ASSIGN_OR_RETURN(Locked locked, Lock(c, count, dtype, first));
    MG_RETURN_IF_ERROR(locked.Prepare(c, gradient, "a gradient"));
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }
  // All must have one shape.
  // `updates`: elements that the update reads.
  static Result<Locked> MakeAlike(KernelContext& c, int count, DType dtype, int64_t updates) {
    MG_ASSIGN_OR_RETURN(Locked locked, Lock(c, count, dtype, 0));
    const Shape shape = locked.value(0).shape();
    MG_RETURN_IF_ERROR(locked.Prepare(c, shape, "slots and a variable",
                                      variable::IsLongUpdate(updates, shape.elements())));
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }
  const Variable& variable(int i) const { return *variables_[static_cast<size_t>(i)]; }
  const Tensor& value(int i) const MG_NO_THREAD_SAFETY_ANALYSIS { return variable(i).value; }

  UpdateTarget& operator[](int i) { return targets_[static_cast<size_t>(i)]; }
  // Whether a value is written in place.
  bool in_place() const {
    return std::any_of(targets_.begin(), targets_.begin() + count_,
                       [](const UpdateTarget& target) { return target.in_place(); });
  }
  void Commit() {
    for (int i = 0; i < count_; ++i) (*this)[i].Commit();
  }

 private:
  Locked() = default;

  struct Unlock {
    void operator()(Variable* variable) const MG_NO_THREAD_SAFETY_ANALYSIS {
      variable->mutex.Unlock();
    }
  };

  static Result<Locked> Lock(KernelContext& c, int count, DType dtype,
                             int first) MG_NO_THREAD_SAFETY_ANALYSIS {
    Locked locked;
    locked.count_ = count;
    std::array<Variable*, kMost> order{};  // null beyond `count`, then, sorted, before it
    for (int i = 0; i < count; ++i) {
      MG_ASSIGN_OR_RETURN(locked.variables_[static_cast<size_t>(i)], FindVariable(c, first + i));
      order[static_cast<size_t>(i)] = locked.variables_[static_cast<size_t>(i)].get();
      MG_RETURN_IF_ERROR(RequireType(*order[static_cast<size_t>(i)], dtype));
    }
    std::sort(order.begin(), order.end(), std::less<>());
    for (size_t i = kMost - static_cast<size_t>(count); i < kMost; ++i) {
      if (i > 0 && order[i] == order[i - 1])
        return InvalidArgument("variable '" + order[i]->name() + "' is given twice to one update");
      if (!LockToUpdate(*order[i], c)) return c.Busy();
      locked.locks_[i].reset(order[i]);
    }
    for (int i = 0; i < count; ++i) {
      MG_RETURN_IF_ERROR(RequireValue(*locked.variables_[static_cast<size_t>(i)], c, first + i));
    }
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }

  Status Prepare(KernelContext& c, const Shape& shape, const char* what,
                 bool long_update = false) MG_NO_THREAD_SAFETY_ANALYSIS {
    for (size_t i = 0; i < static_cast<size_t>(count_); ++i) {
      Variable& v = *variables_[i];
      if (!(v.value.shape() == shape)) {
        return InvalidArgument("variable '" + v.name() + "' of shape " +
                               v.value.shape().ToString() + " cannot be updated by " + what +
                               " of shape " + shape.ToString());
      }
      MG_ASSIGN_OR_RETURN(targets_[i], UpdateTarget::Make(&v.value, c, long_update));
    }
    return Status();
  }

  int count_ = 0;
  std::array<std::shared_ptr<Variable>, kMost> variables_;
  std::array<std::unique_ptr<Variable, Unlock>, kMost> locks_;
  std::array<UpdateTarget, kMost> targets_;
};

inline bool FlagOf(const KernelConstruction& k, const UpdateInputs& inputs) {
  return inputs.flag != nullptr && k.attrs().GetOr<bool>(inputs.flag, inputs.flag_default);
}

// Where a coefficient is, in the device's memory.
template <typename T>
Result<const T*> CoefficientAt(const KernelContext& c, int input) {
  const Tensor& value = c.input(input);
  if (value.elements() == 1) return value.data<T>();
  return InvalidArgument("coefficient " + std::to_string(input) + " must be a scalar, got shape " +
                         value.shape().ToString());
}

}  // namespace monograph::ops::training
