#include "ops/concat/concat_kernels.h"

namespace monograph::ops::concat {
namespace {

template <typename T>
class ConcatOffsetKernel : public Kernel {
 public:
  explicit ConcatOffsetKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const auto rank = static_cast<int>(c.input(1).elements());
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(0), rank));
    T offset = 0;
    for (int i = 1; i < c.num_inputs(); ++i) {
      if (c.input(i).shape().rank() != 1 || c.input(i).elements() != rank) {
        return InvalidArgument("input " + std::to_string(i) + " should contain " +
                               std::to_string(rank) + " elements, but has shape " +
                               c.input(i).shape().ToString());
      }
      const T *shape = c.input(i).data<T>(), *first = c.input(1).data<T>();
      for (int d = 0; d < rank; ++d) {
        if (d != axis && shape[d] != first[d]) {
          return InvalidArgument("shapes differ in dimension " + std::to_string(d) +
                                 ", not only along axis " + std::to_string(axis));
        }
      }
      MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i - 1, c.input(i).shape()));
      std::fill_n(out->data<T>(), rank, T{0});
      out->data<T>()[axis] = offset;
      offset += shape[axis];
    }
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddForCopiedTypes<ConcatKernel<HostMoves>>(registry, {.op = "ConcatV2", .host_args = {"axis"}});
  AddForCopiedTypes<ConcatKernel<HostMoves>>(registry,
                                             {.op = "Concat", .host_args = {"concat_dim"}});
  AddForCopiedTypes<ConcatKernel<HostMoves>>(registry, {.op = "ParallelConcat"});
  registry->Add<ConcatOffsetKernel<int32_t>>({.op = "ConcatOffset",
                                              .types = {{"shape_type", DT_INT32}},
                                              .host_args = {"concat_dim", "shape", "offset"},
                                              .cost = KernelCost::kCheap});
  registry->Add<ConcatOffsetKernel<int64_t>>({.op = "ConcatOffset",
                                              .types = {{"shape_type", DT_INT64}},
                                              .host_args = {"concat_dim", "shape", "offset"},
                                              .cost = KernelCost::kCheap});
  AddForCopiedTypes<SplitKernel<HostMoves>>(registry, {.op = "Split", .host_args = {"split_dim"}});
  AddForCopiedTypes<SplitVKernel<HostMoves>>(
      registry, {.op = "SplitV", .host_args = {"size_splits", "split_dim"}});
  AddForCopiedTypes<PackKernel<HostMoves>>(registry, {.op = "Pack"});
  AddForCopiedTypes<UnpackKernel<HostMoves>>(registry, {.op = "Unpack"});
}

}  // namespace monograph::ops::concat
