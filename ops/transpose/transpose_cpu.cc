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
    std::fill_n(inverse, perm.size(), T{-1});
    for (size_t i = 0; i < perm.size(); ++i) {
      const T at = perm[i];
      if (at < 0 || static_cast<size_t>(at) >= perm.size()) {
        return InvalidArgument(std::to_string(at) + " is not between 0 and " +
                               std::to_string(perm.size()));
      }
      if (inverse[at] != -1)
        return InvalidArgument(std::to_string(at) + " is duplicated in the input");
      inverse[at] = static_cast<T>(i);
    }
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForPlainTypes<TransposeKernel<HostMoves>>(registry,
                                               {.op = "Transpose", .host_args = {"perm"}});
  AddForPlainTypes<ReverseKernel<HostMoves>>(registry, {.op = "ReverseV2", .host_args = {"axis"}});
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
