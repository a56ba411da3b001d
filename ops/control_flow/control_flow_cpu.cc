#include <string>

#include "executor/kernel.h"

namespace monograph::ops::control_flow {
namespace {

class SelectKernel : public Kernel {
 public:
  explicit SelectKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    if (c.input(0).shape().rank() != 0) {
      return InvalidArgument("Index must be a scalar, but it has shape " +
                             c.input(0).shape().ToString());
    }
    const int32_t index = c.input(0).scalar<int32_t>();
    if (index < 0 || index >= c.num_inputs() - 1) {
      return InvalidArgument("Index must be in the range [0, " +
                             std::to_string(c.num_inputs() - 1) + ") but got " +
                             std::to_string(index));
    }
    c.set_output(0, c.input(index + 1));
    return Status();
  }
};

}  // namespace

// The executor runs the others itself.
void RegisterCpu(KernelRegistry* registry) {
  registry->Add<SelectKernel>({.op = "_SelectHandle", .cost = KernelCost::kCheap});
}

}  // namespace monograph::ops::control_flow
