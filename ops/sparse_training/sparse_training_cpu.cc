// Rows are updated in their order and each thread has columns of its own: the split among threads
// cannot change the result.
#include <algorithm>
#include <functional>

#include "ops/check_indices.h"
#include "ops/sparse_training/update_rows.h"
#include "ops/training/cpu_updates.h"

namespace monograph::ops::sparse_training {
namespace {

using training::BoundUpdate;
using training::CpuUpdate;
using training::UpdatedRows;

class HostRows {
 public:
  using Moves = HostMoves;

  explicit HostRows(const KernelConstruction& k)
      : update_(training::FindUpdate(training::CpuUpdatesOfRows(), k.op())) {}
  const UpdateInputs& inputs() const { return update_.inputs; }

  Result<BoundUpdate> Formula(const KernelContext& c, DType dtype, bool flag) const {
    return BoundUpdate::Make(c, update_, dtype, inputs().coefficients, flag);
  }
  Status Update(KernelContext& c, const BoundUpdate& update, void* const* data, int64_t limit,
                int64_t columns, const Tensor& rows, const Tensor& indices) const {
    MG_ASSIGN_OR_RETURN(Tensor memory, c.AllocateTemp(DT_INT64, Shape{indices.elements()}));
    int64_t* const places = memory.data<int64_t>();
    const auto fill = [&](auto index) {
      MG_RETURN_IF_ERROR(CheckIndices(index, limit));
      std::transform(index.begin(), index.end(), places,
                     [&](auto i) { return static_cast<int64_t>(i) * columns; });
      return Status();
    };
    MG_RETURN_IF_ERROR(indices.dtype() == DT_INT32 ? fill(indices.values<int32_t>())
                                                   : fill(indices.values<int64_t>()));
    UpdatedRows all{
        .gradient = rows.raw(), .places = places, .n = indices.elements(), .columns = columns};
    const auto variables = static_cast<size_t>(inputs().variables);
    std::copy_n(data, variables, all.before.begin());
    std::copy_n(data, variables, all.after.begin());
    const auto body = [&](int64_t begin, int64_t end) {
      UpdatedRows part = all;
      part.begin = begin;
      part.end = end;
      update.Run(part, rows.dtype());
    };
    c.ParallelFor(columns, 1 + indices.elements(), std::ref(body));
    return Status();
  }

 private:
  const CpuUpdate& update_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  for (const CpuUpdate& update : training::CpuUpdatesOfRows()) {
    for (DType dtype : {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16})
      AddUpdateOfRows<HostRows>(registry, {.op = update.op, .host_args = update.variables}, dtype);
  }
}

}  // namespace monograph::ops::sparse_training
