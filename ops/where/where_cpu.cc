// One thread counts, then writes: the place of a row depends on all before it.
#include <type_traits>

#include "executor/kernel.h"
#include "ops/cpu/pieces_cpu.h"

namespace monograph::ops::where {
namespace {

template <typename T>
class WhereKernel : public Kernel {
 public:
  explicit WhereKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const Shape& shape = c.input(0).shape();
    const int rank = shape.rank();
    if (rank == 0) return InvalidArgument("WhereOp : Unhandled input dimensions: 0");
    // Of a bool that was fed any byte may come: as a bool it might count more than once.
    using Element = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const auto values = c.input(0).values<Element>();
    const auto n = static_cast<int64_t>(values.size());
    int64_t count = 0;
    const bool counted = InPieces(c, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) count += values[static_cast<size_t>(i)] != Element(0);
    });
    if (!counted) return Status();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{count, rank}));
    int64_t* row = out->data<int64_t>();
    InPieces(c, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (values[static_cast<size_t>(i)] == Element(0)) continue;
        for (int64_t rest = i, d = rank - 1; d >= 0; --d) {
          row[d] = rest % shape.dim(static_cast<int>(d));
          rest /= shape.dim(static_cast<int>(d));
        }
        row += rank;
      }
    });
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define MG_ADD(T) registry->Add<WhereKernel<T>>({.op = "Where", .types = {{"T", kDTypeOf<T>}}});
  MG_ALL_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::where
