#include "ops/loss/l2_loss_cuda.h"
#include "ops/reduce/operators.h"
#include "ops/reduce/rows_cuda.h"

namespace monograph::ops::loss {
namespace {

// Summed in double, as on a CPU.
template <typename T>
class DeviceL2Kernel : public Kernel {
 public:
  explicit DeviceL2Kernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
    return reduce::ReduceRows<T, double, reduce::SumOp<double>, true>(
        c, {c.input(0).raw(), out->raw(), false, false, 2.0}, 1, c.input(0).elements());
  }
};

}  // namespace

void RegisterL2LossCuda(KernelRegistry* registry) {
#define ADD(T) \
  registry->Add<DeviceL2Kernel<T>>({.op = "L2Loss", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::loss
