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
    MG_ASSIGN_OR_RETURN(Locked locked, Find(c, count, dtype, first));
    MG_RETURN_IF_ERROR(locked.Lock(c, gradient));
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }
  // The same in two calls. After the first one none is locked yet.
  static Result<Locked> Find(KernelContext& c, int count, DType dtype, int first) {
    Locked locked;
    locked.count_ = count;
    locked.first_ = first;
    for (int i = 0; i < count; ++i) {
      std::shared_ptr<Variable>& variable = locked.variables_[static_cast<size_t>(i)];
      MG_ASSIGN_OR_RETURN(variable, FindVariable(c, first + i));
      MG_RETURN_IF_ERROR(RequireType(*variable, dtype));
    }
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }
  Status Lock(KernelContext& c, const Shape& gradient) {
    MG_RETURN_IF_ERROR(LockAll(c));
    return Prepare(c, gradient, "a gradient");
  }
  // All must have one shape.
  // `updates`: elements that the update reads.
  static Result<Locked> MakeAlike(KernelContext& c, int count, DType dtype, int64_t updates) {
    MG_ASSIGN_OR_RETURN(Locked locked, Find(c, count, dtype, 0));
    MG_RETURN_IF_ERROR(locked.LockAll(c));
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
  // Gives the locks back before the update, on the thread that alone changes these variables and
  // hands out their values. CommitUnlocked takes each again for a moment.
  void Unlock() {
    for (auto& lock : locks_) lock.reset();
  }
  void CommitUnlocked() MG_NO_THREAD_SAFETY_ANALYSIS {
    for (int i = 0; i < count_; ++i) {
      const MutexLock lock(variables_[static_cast<size_t>(i)]->mutex);
      (*this)[i].Commit();
    }
  }

 private:
  Locked() = default;

  struct Unlocker {
    void operator()(Variable* variable) const MG_NO_THREAD_SAFETY_ANALYSIS {
      variable->mutex.Unlock();
    }
  };

  Status LockAll(KernelContext& c) MG_NO_THREAD_SAFETY_ANALYSIS {
    std::array<Variable*, kMost> order{};  // null beyond `count_`, then, sorted, before it
    for (size_t i = 0; i < kMost; ++i) order[i] = variables_[i].get();
    std::sort(order.begin(), order.end(), std::less<>());
    for (size_t i = kMost - static_cast<size_t>(count_); i < kMost; ++i) {
      if (i > 0 && order[i] == order[i - 1])
        return InvalidArgument("variable '" + order[i]->name() + "' is given twice to one update");
      if (!LockToUpdate(*order[i], c)) return c.Busy();
      locks_[i].reset(order[i]);
    }
    for (int i = 0; i < count_; ++i)
      MG_RETURN_IF_ERROR(RequireValue(*variables_[static_cast<size_t>(i)], c, first_ + i));
    return Status();
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

  int count_ = 0, first_ = 0;
  std::array<std::shared_ptr<Variable>, kMost> variables_;
  std::array<std::unique_ptr<Variable, Unlocker>, kMost> locks_;
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
