// The rows of one index are applied in their order by one thread per column: the same bits as on a
// CPU. An index that the variable has no row for is passed over.
#include "ops/gpu/index_list.h"
#include "ops/sparse_training/update_rows.h"
#include "ops/training/update_cuda.h"

namespace monograph::ops::sparse_training {
namespace {

using training::DeviceFormula;

template <typename T, template <typename> typename FormulaOf>
struct UpdateRowsBody {
  using A = Accumulator<T>;
  using Formula = FormulaOf<A>;
  static constexpr int kN = Formula::kVariables;

  DeviceFormula<T, FormulaOf> formula;
  Chains chains;
  IndexList index;
  T* data[kN];
  const T* rows;
  Divisor columns;

  MG_HD void operator()(int64_t at) const {
    const int64_t i = columns.Divide(at), k = at - i * columns.divisor();
    if (chains.head[i] == 0) return;
    const Formula update = formula.Make();
    const int64_t place = index[i] * columns.divisor() + k;
    T values[kN];
    for (int v = 0; v < kN; ++v) values[v] = data[v][place];
    chains.Walk(i, [&](int64_t p) {
      A old[kN], fresh[kN];
      for (int v = 0; v < kN; ++v) old[v] = Widen(values[v]);
      update(old, Widen(rows[p * columns.divisor() + k]), fresh);
      for (int v = 0; v < kN; ++v) values[v] = Narrow<T>(fresh[v]);
    });
    for (int v = 0; v < kN; ++v) data[v][place] = values[v];
  }
};

template <typename T, template <typename> typename FormulaOf, const UpdateInputs& kInputs>
struct DeviceRows {
  using Moves = DeviceMoves;
  using Body = UpdateRowsBody<T, FormulaOf>;
  static constexpr bool kCutsLong = false;

  explicit DeviceRows(const KernelConstruction&) {}
  const UpdateInputs& inputs() const { return kInputs; }

  Result<DeviceFormula<T, FormulaOf>> Formula(const KernelContext& c, DType, bool flag) const {
    return DeviceFormula<T, FormulaOf>::Of(c, kInputs.coefficients, flag);
  }
  static Status Check(const KernelContext&, int64_t, const Tensor&) { return Status(); }
  Status Update(KernelContext& c, const DeviceFormula<T, FormulaOf>& formula, void* const* data,
                int64_t limit, int64_t columns, const Tensor& rows, const Tensor& indices) const {
    const int64_t n = indices.elements();
    if (n == 0 || columns == 0) return Status();
    Tensor memory;
    MG_ASSIGN_OR_RETURN(const Chains chains, MakeChains(c, indices, limit, &memory));
    Body body{formula, chains, IndexList(indices), {}, rows.data<T>(), Divisor(columns)};
    for (int v = 0; v < Body::kN; ++v) body.data[v] = static_cast<T*>(data[v]);
    return ForEach(c, n * columns, body);
  }
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  training::ForEachUpdateOfRows(
      [&]<template <typename> typename FormulaOf, const UpdateInputs & kInputs>(
          const char* op, std::initializer_list<const char*> variables) {
        const KernelDef def{
            .op = op, .device = kGpu, .host_args = {variables.begin(), variables.end()}};
#define ADD(T) AddUpdateOfRows<DeviceRows<T, FormulaOf, kInputs>>(registry, def, kDTypeOf<T>);
        MG_FLOAT_TYPES(ADD)
#undef ADD
      });
}

}  // namespace monograph::ops::sparse_training
