// What the kernels of optimizers share.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/independent_loop.h"
#include "base/mutex.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/training/formulas.h"
#include "ops/variable/access_cpu.h"

namespace monograph::ops::training {

using variable::FindVariable;
using variable::LockToUpdate;
using variable::RequireType;
using variable::RequireValue;
using variable::UpdateTarget;

// N variables (inputs `first` on) that an update holds exclusively. Locks are taken in the order of
// addresses, so that updates that name them in different orders cannot wait for each other. Clang
// does not follow locks in an array: what takes, uses and gives them back here is not analysed.
template <int N>
class Locked {
 public:
  // Each must have the shape of the gradient.
  static Result<Locked> Make(KernelContext& c, DType dtype, const Shape& gradient, int first = 0) {
    MG_ASSIGN_OR_RETURN(Locked locked, Lock(c, dtype, first));
    MG_RETURN_IF_ERROR(locked.Prepare(c, gradient, "a gradient"));
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }
  // All must have one shape.
  static Result<Locked> MakeAlike(KernelContext& c, DType dtype) {
    MG_ASSIGN_OR_RETURN(Locked locked, Lock(c, dtype, 0));
    const Shape shape = locked.value(0).shape();
    MG_RETURN_IF_ERROR(locked.Prepare(c, shape, "slots and a variable"));
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }
  const Variable& variable(int i) const { return *variables_[static_cast<size_t>(i)]; }
  const Tensor& value(int i) const MG_NO_THREAD_SAFETY_ANALYSIS { return variable(i).value; }

  UpdateTarget& operator[](int i) { return targets_[static_cast<size_t>(i)]; }
  void Commit() {
    for (UpdateTarget& target : targets_) target.Commit();
  }

 private:
  Locked() = default;

  struct Unlock {
    void operator()(Variable* variable) const MG_NO_THREAD_SAFETY_ANALYSIS {
      variable->mutex.Unlock();
    }
  };

  static Result<Locked> Lock(KernelContext& c, DType dtype,
                             int first) MG_NO_THREAD_SAFETY_ANALYSIS {
    Locked locked;
    std::array<Variable*, N> order;
    for (int i = 0; i < N; ++i) {
      MG_ASSIGN_OR_RETURN(locked.variables_[static_cast<size_t>(i)], FindVariable(c, first + i));
      order[static_cast<size_t>(i)] = locked.variables_[static_cast<size_t>(i)].get();
      MG_RETURN_IF_ERROR(RequireType(*order[static_cast<size_t>(i)], dtype));
    }
    std::sort(order.begin(), order.end(), std::less<>());
    for (size_t i = 0; i < N; ++i) {
      if (i > 0 && order[i] == order[i - 1])
        return InvalidArgument("variable '" + order[i]->name() + "' is given twice to one update");
      if (!LockToUpdate(*order[i], c)) return c.Busy();
      locked.locks_[i].reset(order[i]);
    }
    for (int i = 0; i < N; ++i) {
      MG_RETURN_IF_ERROR(RequireValue(*locked.variables_[static_cast<size_t>(i)], c, first + i));
    }
    return Result<Locked>(std::move(locked));  // nvcc would copy it
  }

  Status Prepare(KernelContext& c, const Shape& shape,
                 const char* what) MG_NO_THREAD_SAFETY_ANALYSIS {
    for (size_t i = 0; i < N; ++i) {
      Variable& v = *variables_[i];
      if (!(v.value.shape() == shape)) {
        return InvalidArgument("variable '" + v.name() + "' of shape " +
                               v.value.shape().ToString() + " cannot be updated by " + what +
                               " of shape " + shape.ToString());
      }
      MG_ASSIGN_OR_RETURN(targets_[i], UpdateTarget::Make(&v.value, c));
    }
    return Status();
  }

  std::array<std::shared_ptr<Variable>, N> variables_;
  std::array<std::unique_ptr<Variable, Unlock>, N> locks_;
  std::array<UpdateTarget, N> targets_;
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

// The formula with the coefficients that the inputs `indices` hold.
template <typename T, template <typename> typename FormulaOf>
Result<FormulaOf<Accumulator<T>>> MakeFormula(const KernelContext& c, const int* indices,
                                              bool flag) {
  using Formula = FormulaOf<Accumulator<T>>;
  std::array<Accumulator<T>, Formula::kCoefficients> values;
  for (size_t i = 0; i < values.size(); ++i) {
    if (c.input(indices[i]).dtype() == DT_INT64) {  // a global step
      MG_ASSIGN_OR_RETURN(const int64_t* step, CoefficientAt<int64_t>(c, indices[i]));
      values[i] = static_cast<Accumulator<T>>(*step);
      continue;
    }
    MG_ASSIGN_OR_RETURN(const T* value, CoefficientAt<T>(c, indices[i]));
    values[i] = static_cast<Accumulator<T>>(*value);
  }
  return Formula::Make(values.data(), flag);
}

// step(i) for each of n elements, in fixed blocks on the intra-op threads. A step holds pointers
// and numbers by value, so that its copy stays in registers; what it reads and what it writes may
// be the same memory, but never shifted against each other: the loop is a vector one.
template <typename Step>
void ForElements(KernelContext& c, int64_t n, const Step& step) {
  constexpr int64_t kBlock = 16384;
  const auto blocks = [&](int64_t first, int64_t last) {
    const Step local = step;
    const int64_t end = std::min(n, last * kBlock);
    MG_INDEPENDENT_LOOP
    for (int64_t i = first * kBlock; i < end; ++i) local(i);
  };
  c.ParallelFor((n + kBlock - 1) / kBlock, 10'000, std::ref(blocks));
}

// One element of a variable and its slots. Written out for each of them, so that values stay in
// registers and loops over this are vector ones.
template <typename T, typename Formula, size_t... kIs>
inline void UpdateElement(const Formula& formula, const T* const* before, T* const* after,
                          Accumulator<T> g, int64_t i, std::index_sequence<kIs...>) {
  using A = Accumulator<T>;
  const A old[] = {static_cast<A>(before[kIs][i])...};
  A fresh[sizeof...(kIs)];
  formula(old, g, fresh);
  ((after[kIs][i] = T(fresh[kIs])), ...);
}

}  // namespace monograph::ops::training
