#include <limits>

#include "ops/cpu/kernel_util.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"
#include "ops/reduce/operators.h"
#include "ops/reduce/plan.h"
#include "ops/reduce/register.h"
#include "ops/reduce/rows_cuda.h"

namespace monograph::ops::reduce {

void RegisterCpu(KernelRegistry* registry);

namespace {

// 16-bit floats are reduced as floats and rounded once.
template <typename T, template <typename> typename OpOf, bool kMean>
class DeviceReduceKernel : public Kernel {
 public:
  explicit DeviceReduceKernel(const KernelConstruction& k)
      : keep_dims_(k.attr<bool>("keep_dims")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ReducePlan plan,
                        MakePlan(c.input(0).shape(), c.input(1), keep_dims_));
    if (plan.reduced_elements == 1) {
      c.set_output(0, c.TakeInput(0).Reshaped(plan.output));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    if (plan.kept_elements == 0) return Status();
    if (plan.reduced_elements == 0) return FillEmpty(c, plan, out);
    ReduceData<T, A> data{c.input(0).raw(), out->raw(), false, false, A(1)};
    if constexpr (kMean) data.divisor = static_cast<A>(plan.reduced_elements);
    const auto& size = plan.size;
    if (plan.Is({true})) return ReduceRows<T, A, Op>(c, data, 1, size[0]);
    if (plan.Is({false, true})) return ReduceRows<T, A, Op>(c, data, size[0], size[1]);
    if (plan.Is({true, false})) return ReduceColumns<T, A, Op>(c, data, 1, size[0], size[1]);
    if (plan.Is({false, true, false}))
      return ReduceColumns<T, A, Op>(c, data, size[0], size[1], size[2]);
    // More alternations.
    MG_ASSIGN_OR_RETURN(Tensor moved, c.AllocateTemp(kDTypeOf<T>, Shape{plan.kept_elements,
                                                                        plan.reduced_elements}));
    MG_RETURN_IF_ERROR(
        DeviceMoves::Strided(c, sizeof(T), data.in, moved.raw(), plan.ReducedLast()));
    data.in = moved.raw();
    return ReduceRows<T, A, Op>(c, data, plan.kept_elements, plan.reduced_elements);
  }

 private:
  using A = Accumulator<T>;
  using Op = OpOf<A>;

  static Status FillEmpty(KernelContext& c, const ReducePlan& plan, Tensor* out) {
    A value = Op::Zero();
    if constexpr (kMean && !std::is_integral_v<A>) value = std::numeric_limits<A>::quiet_NaN();
    const T narrow = Narrow<T>(value);
    return DeviceMoves::Fill(c, sizeof(T), &narrow, out->raw(), plan.kept_elements);
  }

  const bool keep_dims_;
};

template <template <typename> typename OpOf, bool kMean>
void AddReduction(KernelRegistry* registry, const char* op) {
#define MG_ADD(T)                                                                   \
  registry->Add<DeviceReduceKernel<T, OpOf, kMean>>({.op = op,                      \
                                                     .device = kGpu,                \
                                                     .types = {{"T", kDTypeOf<T>}}, \
                                                     .host_args = {"reduction_indices"}});
  MG_FLOAT_TYPES(MG_ADD)
  MG_ADD(int64_t)
#undef MG_ADD
}

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
  AddReduction<SumOp, false>(registry, "Sum");
  AddReduction<SumOp, true>(registry, "Mean");
  AddReduction<MaxOp, false>(registry, "Max");
  AddReduction<MinOp, false>(registry, "Min");
  AddReduction<ProdOp, false>(registry, "Prod");
  registry->Add<DeviceReduceKernel<bool, AllOp, false>>(
      {.op = "All", .device = kGpu, .host_args = {"reduction_indices"}});
  registry->Add<DeviceReduceKernel<bool, AnyOp, false>>(
      {.op = "Any", .device = kGpu, .host_args = {"reduction_indices"}});
  RegisterArgAndScanCuda(registry);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  constexpr DType kInt32[] = {DT_INT32};
  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"})
    AddOnHost(registry, cpu, op, {"input", "output"}, "T", kInt32);
  for (const char* op : {"Cumsum", "Cumprod"})
    AddOnHost(registry, cpu, op, {"x", "out"}, "T", kInt32);
}

}  // namespace monograph::ops::reduce
