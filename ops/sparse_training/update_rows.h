// The frame of updates of rows, for any device: what they ask of shapes, and the ops there are.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ops/gpu/moves.h"
#include "ops/training/update_cpu.h"

namespace monograph::ops::sparse_training {

using training::Locked;
using training::UpdateInputs;

inline Status CheckRows(const Shape& variable, const Tensor& rows, const Tensor& indices) {
  Shape wanted{indices.elements()};
  for (int i = 1; i < variable.rank(); ++i) wanted.AddDim(variable.dim(i));
  if (variable.rank() > 0 && indices.shape().rank() == 1 && rows.shape() == wanted) return Status();
  return InvalidArgument("rows of shape " + rows.shape().ToString() + " at indices of shape " +
                         indices.shape().ToString() + " do not fit a variable of shape " +
                         variable.ToString());
}

// Rows<T, FormulaOf> computes:
//   Moves                                       as in ops/gpu/moves.h
//   Formula(c, indices of coefficients, flag)   what Update takes
//   Update(c, formula, data, limit, columns, rows, indices)   data[v]: variable, then slots
template <typename T, template <typename> typename FormulaOf, const UpdateInputs& kInputs,
          template <typename, template <typename> typename> typename Rows>
class UpdateRowsKernel : public Kernel {
 public:
  explicit UpdateRowsKernel(const KernelConstruction& k) : flag_(training::FlagOf(k, kInputs)) {}

  Status Compute(KernelContext& c) override {
    using Device = Rows<T, FormulaOf>;
    constexpr int kN = FormulaOf<Accumulator<T>>::kVariables;
    MG_ASSIGN_OR_RETURN(const auto formula, Device::Formula(c, kInputs.coefficients, flag_));
    const Tensor &rows = c.input(kInputs.gradient), &indices = c.input(kInputs.gradient + 1);
    MG_ASSIGN_OR_RETURN(auto locked, Locked<kN>::MakeAlike(c, kDTypeOf<T>));
    const Shape shape = locked.value(0).shape();
    MG_RETURN_IF_ERROR(CheckRows(shape, rows, indices));
    const size_t bytes = static_cast<size_t>(shape.elements()) * sizeof(T);
    T* data[kN];
    for (int i = 0; i < kN; ++i) {
      const T* before = locked[i].template before<T>();
      data[i] = locked[i].template after<T>();
      if (data[i] != before) MG_RETURN_IF_ERROR(Device::Moves::Copy(c, data[i], before, bytes));
    }
    const int64_t limit = shape.dim(0), columns = limit == 0 ? 0 : shape.elements() / limit;
    MG_RETURN_IF_ERROR(Device::Update(c, formula, data, limit, columns, rows, indices));
    locked.Commit();
    return Status();
  }

 private:
  const bool flag_;
};

// Calls fn.operator()<Formula, kInputs>(op, {names of its variables}) for each update of rows.
template <typename Fn>
void ForEachUpdateOfRows(const Fn& fn) {
  using namespace training;
  fn.template operator()<MomentumFormula, kSparseMomentum>("ResourceSparseApplyMomentum",
                                                           {"var", "accum"});
  fn.template operator()<AdagradV1, kAdagrad>("ResourceSparseApplyAdagrad", {"var", "accum"});
  fn.template operator()<AdagradV2, kAdagradV2>("ResourceSparseApplyAdagradV2", {"var", "accum"});
  fn.template operator()<RMSPropFormula, kRMSProp>("ResourceSparseApplyRMSProp",
                                                   {"var", "ms", "mom"});
  fn.template operator()<CenteredRMSPropFormula, kCenteredRMSProp>(
      "ResourceSparseApplyCenteredRMSProp", {"var", "mg", "ms", "mom"});
}

// Kernels for both types of indices, from a KernelDef that lacks types.
template <typename T, template <typename> typename FormulaOf, const UpdateInputs& kInputs,
          template <typename, template <typename> typename> typename Rows>
void AddUpdateOfRows(KernelRegistry* registry, KernelDef def) {
  for (DType index : {DT_INT32, DT_INT64}) {
    def.types = {{"T", kDTypeOf<T>}, {"Tindices", index}};
    registry->Add<UpdateRowsKernel<T, FormulaOf, kInputs, Rows>>(def);
  }
}

}  // namespace monograph::ops::sparse_training
