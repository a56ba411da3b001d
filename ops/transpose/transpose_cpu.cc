#include "ops/cpu/pieces_cpu.h"
#include "ops/transpose/transpose_kernels.h"

namespace monograph::ops::transpose {
namespace {

template <typename T>
class InvertPermutationKernel : public Kernel {
 public:
  explicit InvertPermutationKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const auto perm = c.input(0).values<T>();
    if (c.input(0).shape().rank() != 1) return InvalidArgument("a permutation must be a vector");
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(0).shape()));
    T* inverse = out->data<T>();
    const auto n = static_cast<int64_t>(perm.size());
    InPieces(c, n,
             [&](int64_t begin, int64_t end) { std::fill_n(inverse + begin, end - begin, T{-1}); });
    Status status;
    InPieces(c, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && status.ok(); ++i) {
        const T at = perm[static_cast<size_t>(i)];
        if (at < 0 || static_cast<int64_t>(at) >= n) {
          status =
              InvalidArgument(std::to_string(at) + " is not between 0 and " + std::to_string(n));
        } else if (inverse[at] != -1) {
          status = InvalidArgument(std::to_string(at) + " is duplicated in the input");
        } else {
          inverse[at] = static_cast<T>(i);
        }
      }
    });
    return status;
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForPlainTypes<TransposeKernel<HostMoves>>(registry,
                                               {.op = "Transpose", .host_args = {"perm"}});
  for (const DType dtype : kPlainTypes) {
    if (IsComplex(dtype)) continue;
    registry->Add<TransposeKernel<HostMoves>>(
        {.op = "ConjugateTranspose", .types = {{"T", dtype}}, .host_args = {"perm"}});
  }
  AddForPlainTypes<ReverseKernel<HostMoves>>(registry, {.op = "ReverseV2", .host_args = {"axis"}});
  AddForPlainTypes<ReverseKernel<HostMoves>>(registry, {.op = "Reverse", .host_args = {"dims"}});
  registry->Add<InvertPermutationKernel<int32_t>>({.op = "InvertPermutation",
                                                   .types = {{"T", DT_INT32}},
                                                   .host_args = {"x", "y"},
                                                   .cost = KernelCost::kCheap});
  registry->Add<InvertPermutationKernel<int64_t>>({.op = "InvertPermutation",
                                                   .types = {{"T", DT_INT64}},
                                                   .host_args = {"x", "y"},
                                                   .cost = KernelCost::kCheap});
}

}  // namespace monograph::ops::transpose
