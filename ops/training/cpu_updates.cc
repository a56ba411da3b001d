// The loop over elements for each formula, the table of the ops that use it, and the way of half
// and of 16-bit gradients of floats: a chunk of each row is widened, updated as floats and
// narrowed.
#include "ops/training/cpu_updates.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/independent_loop.h"
#include "base/status.h"
#include "ops/cpu/kernel_util.h"
#include "ops/training/cpu_formulas.h"
#include "ops/training/update_cpu.h"

namespace monograph::ops::training {
namespace {

// One element of a variable and its slots. Written out for each of them, so that values stay in
// registers and loops over this are vector ones.
template <typename T, typename Formula, size_t... kIs>
inline void UpdateElement(const Formula& formula, const T* const* before, T* const* after,
                          Accumulator<T> g, int64_t i, std::index_sequence<kIs...>) {
  const Accumulator<T> old[] = {static_cast<Accumulator<T>>(before[kIs][i])...};
  Accumulator<T> fresh[sizeof...(kIs)];
  formula(old, g, fresh);
  ((after[kIs][i] = T(fresh[kIs])), ...);
}

template <typename T, template <typename> typename FormulaOf>
void UpdateRows(const double* coefficients, bool flag, const UpdatedRows& rows) {
  using A = Accumulator<T>;
  using Formula = FormulaOf<A>;
  A values[Formula::kCoefficients];
  for (int i = 0; i < Formula::kCoefficients; ++i) values[i] = static_cast<A>(coefficients[i]);
  const Formula formula = MakeFormula<Formula>(values, flag);
  for (int64_t row = 0; row < rows.n; ++row) {
    const T* before[Formula::kVariables];
    T* after[Formula::kVariables];
    for (size_t v = 0; v < Formula::kVariables; ++v) {
      before[v] = static_cast<const T*>(rows.before[v]) + rows.places[row];
      after[v] = static_cast<T*>(rows.after[v]) + rows.places[row];
    }
    const T* g = static_cast<const T*>(rows.gradient) + row * rows.columns;
    const int64_t end = rows.end;
    MG_INDEPENDENT_LOOP
    for (int64_t i = rows.begin; i < end; ++i)
      UpdateElement<T>(formula, before, after, static_cast<A>(g[i]), i,
                       std::make_index_sequence<Formula::kVariables>());
  }
}

template <template <typename> typename FormulaOf>
CpuUpdate Describe(std::string op, std::initializer_list<const char*> variables,
                   const UpdateInputs& inputs) {
  return {std::move(op),
          {variables.begin(), variables.end()},
          inputs,
          FormulaOf<float>::kCoefficients,
          &UpdateRows<float, FormulaOf>,
          &UpdateRows<double, FormulaOf>,
          &UpdateRows<bfloat16, FormulaOf>};
}

// The ops that GPUs have, too, and those that only CPUs have.
std::vector<CpuUpdate> All(bool of_rows) {
  std::vector<CpuUpdate> all;
  const auto shared = [&]<template <typename> typename FormulaOf, const UpdateInputs & kInputs>(
                          const char* op, std::initializer_list<const char*> variables) {
    all.push_back(Describe<FormulaOf>(op, variables, kInputs));
  };
  if (of_rows) {
    ForEachUpdateOfRows(shared);
  } else {
    ForEachUpdate(shared);
  }
  const std::string prefix = of_rows ? "ResourceSparseApply" : "ResourceApply";
  ForEachCpuUpdate([&]<template <typename> typename FormulaOf>(
                       const char* name, std::initializer_list<const char*> variables,
                       const UpdateInputs* whole, const UpdateInputs* rows) {
    const UpdateInputs* inputs = of_rows ? rows : whole;
    if (inputs != nullptr) all.push_back(Describe<FormulaOf>(prefix + name, variables, *inputs));
  });
  return all;
}

constexpr int64_t kChunk = 256;

// A chunk as floats: those of `buffer` unless T is float.
template <typename T>
const float* Widened(const void* from, int64_t at, int64_t n, float* buffer) {
  const T* values = static_cast<const T*>(from) + at;
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    ToFloats(values, buffer, n);
    return buffer;
  }
}

template <typename T>
Result<double> CoefficientOf(const KernelContext& c, int input) {
  MG_ASSIGN_OR_RETURN(const T* value, CoefficientAt<T>(c, input));
  return static_cast<double>(static_cast<Accumulator<T>>(*value));
}

}  // namespace

const std::vector<CpuUpdate>& CpuUpdates() {
  static const std::vector<CpuUpdate> all = All(false);
  return all;
}

const std::vector<CpuUpdate>& CpuUpdatesOfRows() {
  static const std::vector<CpuUpdate> all = All(true);
  return all;
}

const CpuUpdate& FindUpdate(const std::vector<CpuUpdate>& updates, std::string_view op) {
  const auto found = std::find_if(updates.begin(), updates.end(),
                                  [&](const CpuUpdate& update) { return update.op == op; });
  MG_CHECK(found != updates.end());
  return *found;
}

Result<BoundUpdate> BoundUpdate::Make(const KernelContext& c, const CpuUpdate& update, DType dtype,
                                      const int* inputs, bool flag) {
  BoundUpdate bound;
  bound.update_ = &update;
  bound.dtype_ = dtype;
  bound.flag_ = flag;
  for (int i = 0; i < update.coefficients; ++i) {
    double& value = bound.coefficients_[static_cast<size_t>(i)];
    switch (c.input(inputs[i]).dtype()) {
#define CASE(T)                                                 \
  case kDTypeOf<T>: {                                           \
    MG_ASSIGN_OR_RETURN(value, CoefficientOf<T>(c, inputs[i])); \
    break;                                                      \
  }
      MG_FLOAT_TYPES(CASE)
      CASE(int64_t)  // a global step
#undef CASE
      default:
        return InvalidArgument("a coefficient cannot be " +
                               std::string(DTypeName(c.input(inputs[i]).dtype())));
    }
  }
  return bound;
}

void BoundUpdate::Run(const UpdatedRows& rows, DType gradient) const {
  if (dtype_ == DT_DOUBLE) return update_->of_double(coefficients_.data(), flag_, rows);
  if (dtype_ == DT_HALF) return RunAsFloats<half, half>(rows);
  if (dtype_ == DT_BFLOAT16) return update_->of_bfloat16(coefficients_.data(), flag_, rows);
  if (gradient == DT_HALF) return RunAsFloats<float, half>(rows);
  if (gradient == DT_BFLOAT16) return RunAsFloats<float, bfloat16>(rows);
  update_->of_float(coefficients_.data(), flag_, rows);
}

template <typename T, typename G>
void BoundUpdate::RunAsFloats(const UpdatedRows& rows) const {
  constexpr int64_t kPlace = 0;
  float wide[kMostVariables][kChunk], wide_gradient[kChunk];
  const auto variables = static_cast<size_t>(update_->inputs.variables);
  UpdatedRows chunk{.places = &kPlace, .n = 1, .columns = kChunk, .begin = 0};
  for (int64_t row = 0; row < rows.n; ++row) {
    for (int64_t begin = rows.begin; begin < rows.end; begin += kChunk) {
      const int64_t n = std::min(kChunk, rows.end - begin), at = rows.places[row] + begin;
      for (size_t v = 0; v < variables; ++v) {
        chunk.before[v] = Widened<T>(rows.before[v], at, n, wide[v]);
        chunk.after[v] = wide[v];
        if constexpr (std::is_same_v<T, float>)
          chunk.after[v] = static_cast<float*>(rows.after[v]) + at;
      }
      chunk.gradient = Widened<G>(rows.gradient, row * rows.columns + begin, n, wide_gradient);
      chunk.end = n;
      update_->of_float(coefficients_.data(), flag_, chunk);
      if constexpr (!std::is_same_v<T, float>) {
        for (size_t v = 0; v < variables; ++v)
          FromFloats(wide[v], static_cast<T*>(rows.after[v]) + at, n);
      }
    }
  }
}

}  // namespace monograph::ops::training
