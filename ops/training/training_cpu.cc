// Each update is one pass over variable, slots and gradient, element by element: the split among
// threads cannot change the result.
//
// An update in place is done to its end, however long the variable is; one to fresh memory is left
// when the step is aborted.
#include <functional>

#include "ops/training/cpu_updates.h"
#include "ops/training/multi_update.h"
#include "ops/training/update_cpu.h"

namespace monograph::ops::training {
namespace {

constexpr DType kTypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16};

// Updates the variable that input `first` names, and the slots behind it, in fixed blocks on the
// intra-op threads.
Status UpdateWhole(KernelContext& c, const BoundUpdate& update, int variables, DType dtype,
                   int first, const Tensor& gradient) {
  c.AllowCancel();
  MG_ASSIGN_OR_RETURN(Locked locked, Locked::Make(c, variables, dtype, gradient.shape(), first));
  if (locked.in_place()) MG_RETURN_IF_ERROR(c.BeginChange());
  constexpr int64_t kBlock = 16384, kPlace = 0;
  const int64_t n = gradient.elements();
  UpdatedRows whole{.gradient = gradient.raw(), .places = &kPlace, .n = 1, .columns = n};
  for (int i = 0; i < variables; ++i) {
    whole.before[static_cast<size_t>(i)] = locked[i].before<char>();
    whole.after[static_cast<size_t>(i)] = locked[i].after<char>();
  }
  const auto blocks = [&](int64_t begin, int64_t end) {
    UpdatedRows part = whole;
    part.begin = begin * kBlock;
    part.end = std::min(n, end * kBlock);
    update.Run(part, gradient.dtype());
  };
  c.ParallelFor((n + kBlock - 1) / kBlock, 10'000, std::ref(blocks));
  MG_RETURN_IF_ERROR(c.BeginChange());
  locked.Commit();
  return Status();
}

class UpdateKernel : public Kernel {
 public:
  explicit UpdateKernel(const KernelConstruction& k)
      : update_(FindUpdate(CpuUpdates(), k.op())),
        dtype_(k.attr<DType>("T")),
        flag_(FlagOf(k, update_.inputs)) {}
  Status Compute(KernelContext& c) override {
    const UpdateInputs& inputs = update_.inputs;
    MG_ASSIGN_OR_RETURN(const BoundUpdate update,
                        BoundUpdate::Make(c, update_, dtype_, inputs.coefficients, flag_));
    return UpdateWhole(c, update, inputs.variables, dtype_, 0, c.input(inputs.gradient));
  }

 private:
  const CpuUpdate& update_;
  const DType dtype_;
  const bool flag_;
};

// _MultiResourceApply: the updates one after the other.
class MultiUpdateKernel : public Kernel {
 public:
  explicit MultiUpdateKernel(const KernelConstruction& k)
      : update_(FindUpdate(CpuUpdates(), k.attr<std::string>("update"))),
        dtype_(k.attr<DType>("T")),
        inputs_(k) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(
        const BoundUpdate update,
        BoundUpdate::Make(c, update_, dtype_, inputs_.coefficients.data(), inputs_.flag));
    const int variables = update_.inputs.variables;
    for (int i = 0; i < inputs_.updates; ++i)
      MG_RETURN_IF_ERROR(
          UpdateWhole(c, update, variables, dtype_, i * variables, c.input(inputs_.gradient + i)));
    return Status();
  }

 private:
  const CpuUpdate& update_;
  const DType dtype_;
  const MultiInputs inputs_;
};

Result<std::unique_ptr<Kernel>> MakeMulti(const KernelConstruction& k) {
  return MakeMultiUpdate(
      k, [&]<template <typename> typename>() { return std::make_unique<MultiUpdateKernel>(k); });
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  for (DType dtype : kTypes) {
    for (const CpuUpdate& update : CpuUpdates())
      registry->Add<UpdateKernel>(
          {.op = update.op, .types = {{"T", dtype}}, .host_args = update.variables});
    registry->Add(
        {.op = "_MultiResourceApply", .types = {{"T", dtype}}, .host_args = {"variables"}},
        &MakeMulti);
  }
}

}  // namespace monograph::ops::training
