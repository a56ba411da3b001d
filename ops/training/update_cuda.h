// What the kernels of optimizers on a GPU share. Coefficients are scalars in the device's memory,
// which each thread reads for itself.
#pragma once

#include "ops/launch.h"
#include "ops/training/update_cpu.h"

namespace monograph::ops::training {

template <typename T, template <typename> typename FormulaOf>
struct DeviceFormula {
  using A = Accumulator<T>;
  using Formula = FormulaOf<A>;
  const T* coefficients[Formula::kCoefficients];
  bool flag;

  MG_HD Formula Make() const {
    A values[Formula::kCoefficients];
    for (int i = 0; i < Formula::kCoefficients; ++i) values[i] = Widen(*coefficients[i]);
    return Formula::Make(values, flag);
  }

  // `indices`: the inputs that hold the coefficients.
  static Result<DeviceFormula> Of(const KernelContext& c, const int* indices, bool flag) {
    DeviceFormula formula;
    formula.flag = flag;
    for (int i = 0; i < Formula::kCoefficients; ++i) {
      const Tensor& value = c.input(indices[i]);
      if (value.elements() != 1) {
        return InvalidArgument("coefficient " + std::to_string(indices[i]) +
                               " must be a scalar, got shape " + value.shape().ToString());
      }
      formula.coefficients[i] = value.data<T>();
    }
    return formula;
  }
};

}  // namespace monograph::ops::training
