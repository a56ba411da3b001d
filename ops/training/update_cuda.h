// What the kernels of optimizers on a GPU share. Coefficients are scalars in the device's memory,
// which each thread reads for itself.
#pragma once

#include "ops/gpu/launch.h"
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
    return MakeFormula<Formula>(values, flag);
  }

  // `indices`: the inputs that hold the coefficients.
  static Result<DeviceFormula> Of(const KernelContext& c, const int* indices, bool flag) {
    DeviceFormula formula;
    formula.flag = flag;
    for (int i = 0; i < Formula::kCoefficients; ++i) {
      MG_ASSIGN_OR_RETURN(formula.coefficients[i], CoefficientAt<T>(c, indices[i]));
    }
    return formula;
  }
};

}  // namespace monograph::ops::training
