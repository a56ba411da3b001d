// Rows are updated in their order and each thread has columns of its own: the split among threads
// cannot change the result.
#include "ops/check_indices.h"
#include "ops/sparse_training/update_rows.h"
#include "ops/training/cpu_formulas.h"

namespace monograph::ops::sparse_training {
namespace {

template <typename T, template <typename> typename FormulaOf>
struct HostRows {
  using A = Accumulator<T>;
  using Moves = HostMoves;
  static constexpr int kN = FormulaOf<A>::kVariables;

  static Result<FormulaOf<A>> Formula(const KernelContext& c, const int* coefficients, bool flag) {
    return training::MakeFormula<T, FormulaOf>(c, coefficients, flag);
  }
  static Status Update(KernelContext& c, const FormulaOf<A>& formula, T* const* data, int64_t limit,
                       int64_t columns, const Tensor& rows, const Tensor& indices) {
    if (indices.dtype() == DT_INT32)
      return Update(c, formula, data, limit, columns, rows.data<T>(), indices.values<int32_t>());
    return Update(c, formula, data, limit, columns, rows.data<T>(), indices.values<int64_t>());
  }

 private:
  template <typename I>
  static Status Update(KernelContext& c, const FormulaOf<A>& formula, T* const* data, int64_t limit,
                       int64_t columns, const T* gradient, std::span<const I> index) {
    MG_RETURN_IF_ERROR(CheckIndices(index, limit));
    const auto body = [&](int64_t begin, int64_t end) {
      for (size_t i = 0; i < index.size(); ++i) {
        const int64_t row = static_cast<int64_t>(index[i]) * columns;
        const T* g = gradient + static_cast<int64_t>(i) * columns;
        for (int64_t k = begin; k < end; ++k) {
          A old[kN], fresh[kN];
          for (size_t v = 0; v < kN; ++v) old[v] = static_cast<A>(data[v][row + k]);
          formula(old, static_cast<A>(g[k]), fresh);
          for (size_t v = 0; v < kN; ++v) data[v][row + k] = T(fresh[v]);
        }
      }
    };
    c.ParallelFor(columns, 1 + static_cast<int64_t>(index.size()), std::ref(body));
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  const auto add = [&]<template <typename> typename FormulaOf, const UpdateInputs & kInputs>(
                       const char* op, std::initializer_list<const char*> variables) {
    const KernelDef def{.op = op, .host_args = {variables.begin(), variables.end()}};
#define ADD(T) AddUpdateOfRows<T, FormulaOf, kInputs, HostRows>(registry, def);
    MG_FLOAT_TYPES(ADD)
#undef ADD
  };
  ForEachUpdateOfRows(add);
  training::ForEachCpuUpdateOfRows(add);
}

}  // namespace monograph::ops::sparse_training
