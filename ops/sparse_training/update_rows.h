// The frame of updates of rows, for any device, and what they ask of shapes.
#pragma once

#include <array>

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

// Rows, made from the node, has
//   Moves                       as in ops/gpu/moves.h
//   inputs()                    where the node's inputs are
//   kCutsLong                   whether Update looks at cancellation
//   Formula(c, dtype, flag)     what Update takes
//   Check(c, limit, indices)    whether they name rows, as far as the host can tell
//   Update(c, formula, data, limit, columns, rows, indices)   data[v]: variable, then slots
template <typename Rows>
class UpdateRowsKernel : public Kernel {
 public:
  explicit UpdateRowsKernel(const KernelConstruction& k)
      : rows_(k), dtype_(k.attr<DType>("T")), flag_(training::FlagOf(k, rows_.inputs())) {}

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const UpdateInputs& inputs = rows_.inputs();
    MG_ASSIGN_OR_RETURN(const auto formula, rows_.Formula(c, dtype_, flag_));
    const Tensor &rows = c.input(inputs.gradient), &indices = c.input(inputs.gradient + 1);
    MG_ASSIGN_OR_RETURN(Locked locked, Locked::MakeAlike(c, inputs.variables, dtype_,
                                                         Rows::kCutsLong ? rows.elements() : 0));
    const Shape shape = locked.value(0).shape();
    MG_RETURN_IF_ERROR(CheckRows(shape, rows, indices));
    MG_RETURN_IF_ERROR(rows_.Check(c, shape.dim(0), indices));
    if (locked.in_place()) MG_RETURN_IF_ERROR(c.BeginChange());
    const size_t bytes = locked.value(0).bytes();
    std::array<void*, Locked::kMost> data;
    for (int i = 0; i < inputs.variables; ++i) {
      const char* before = locked[i].before<char>();
      char* after = locked[i].after<char>();
      data[static_cast<size_t>(i)] = after;
      if (after != before) MG_RETURN_IF_ERROR(Rows::Moves::Copy(c, after, before, bytes));
    }
    const int64_t limit = shape.dim(0), columns = limit == 0 ? 0 : shape.elements() / limit;
    MG_RETURN_IF_ERROR(rows_.Update(c, formula, data.data(), limit, columns, rows, indices));
    MG_RETURN_IF_ERROR(c.BeginChange());
    locked.Commit();
    return Status();
  }

 private:
  const Rows rows_;
  const DType dtype_;
  const bool flag_;
};

// Kernels for both types of indices, from a KernelDef that lacks types.
template <typename Rows>
void AddUpdateOfRows(KernelRegistry* registry, KernelDef def, DType dtype) {
  for (DType index : {DT_INT32, DT_INT64}) {
    def.types = {{"T", dtype}, {"Tindices", index}};
    registry->Add<UpdateRowsKernel<Rows>>(def);
  }
}

}  // namespace monograph::ops::sparse_training
