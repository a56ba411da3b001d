// Rows are updated in their order and each thread has columns of its own: the split among threads
// cannot change the result.
#include <algorithm>
#include <functional>

#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/slices_cpu.h"
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
  static constexpr bool kCutsLong = true;

  explicit HostRows(const KernelConstruction& k)
      : update_(training::FindUpdate(training::CpuUpdatesOfRows(), k.op())) {}
  const UpdateInputs& inputs() const { return update_.inputs; }

  Result<BoundUpdate> Formula(const KernelContext& c, DType dtype, bool flag) const {
    return BoundUpdate::Make(c, update_, dtype, inputs().coefficients, flag);
  }
  static Status Check(const KernelContext& c, int64_t limit, const Tensor& indices) {
    return CheckRowIndices(c, limit, indices);
  }
  // `indices` are checked.
  Status Update(KernelContext& c, const BoundUpdate& update, void* const* data, int64_t,
                int64_t columns, const Tensor& rows, const Tensor& indices) const {
    const int64_t n = indices.elements();
    MG_ASSIGN_OR_RETURN(Tensor memory, c.AllocateTemp(DT_INT64, Shape{n}));
    int64_t* const places = memory.data<int64_t>();
    WithIndices(indices, [&](auto index) {
      InPieces(c, n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          places[i] = static_cast<int64_t>(index[static_cast<size_t>(i)]) * columns;
      });
    });
    UpdatedRows all{.gradient = rows.raw(), .places = places, .n = n, .columns = columns};
    const auto variables = static_cast<size_t>(inputs().variables);
    std::copy_n(data, variables, all.before.begin());
    std::copy_n(data, variables, all.after.begin());
    const size_t row_bytes = static_cast<size_t>(columns) * DTypeSize(rows.dtype());
    const auto body = [&](int64_t begin, int64_t end) {
      InPieces(
          c, n, std::max<int64_t>(1, kPiece / (end - begin)), [&](int64_t first, int64_t last) {
            UpdatedRows part = all;
            part.gradient =
                static_cast<const char*>(all.gradient) + static_cast<size_t>(first) * row_bytes;
            part.places = all.places + first;
            part.n = last - first;
            part.begin = begin;
            part.end = end;
            update.Run(part, rows.dtype());
          });
    };
    c.ParallelFor(columns, 1 + n, std::ref(body));
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
