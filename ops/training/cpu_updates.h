// The updates of optimizers on CPUs. The loop over elements is compiled once for each formula and
// type; kernels of whole variables and of rows share it. Half, whose conversions are no plain code,
// goes through that of floats, and so do floats with 16-bit gradients.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "executor/kernel.h"
#include "ops/training/formulas.h"

namespace monograph::ops::training {

inline constexpr int kMostVariables = 4, kMostCoefficients = 6;

// The n rows of a gradient and where they belong: row i to the elements of a variable and its slots
// from places[i] on, which are read in `before` and written in `after`; these may be the same
// memory. Of each row columns [begin, end).
struct UpdatedRows {
  std::array<const void*, kMostVariables> before;
  std::array<void*, kMostVariables> after;
  const void* gradient;
  const int64_t* places;
  int64_t n, columns, begin, end;
};

// Row by row. `coefficients` is what the formula's Make takes.
using UpdateRowsFn = void (*)(const double* coefficients, bool flag, const UpdatedRows& rows);

struct CpuUpdate {
  std::string op;
  std::vector<std::string> variables;  // names of its inputs: the variable, then slots
  UpdateInputs inputs;
  int coefficients;
  UpdateRowsFn of_float, of_double, of_bfloat16;
};
const std::vector<CpuUpdate>& CpuUpdates();        // of whole variables
const std::vector<CpuUpdate>& CpuUpdatesOfRows();  // of rows that indices name
// The one of that op. REQUIRES: it is there.
const CpuUpdate& FindUpdate(const std::vector<CpuUpdate>& updates, std::string_view op);

// An update with its coefficients.
class BoundUpdate {
 public:
  // `inputs` hold the coefficients. `dtype`: of variables and slots.
  static Result<BoundUpdate> Make(const KernelContext& c, const CpuUpdate& update, DType dtype,
                                  const int* inputs, bool flag);
  // `gradient` is the type of rows.gradient: that of the variables, or 16-bit floats for float
  // ones.
  void Run(const UpdatedRows& rows, DType gradient) const;

 private:
  template <typename T, typename G>
  void RunAsFloats(const UpdatedRows& rows) const;

  const CpuUpdate* update_ = nullptr;
  DType dtype_ = DT_INVALID;
  bool flag_ = false;
  std::array<double, kMostCoefficients> coefficients_;
};

}  // namespace monograph::ops::training
