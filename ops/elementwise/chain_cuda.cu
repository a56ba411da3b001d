#include "ops/elementwise/chain.h"
#include "ops/elementwise/loops_cuda.h"

namespace monograph::ops::elementwise {
namespace {

template <typename T>
class DeviceChainKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<DeviceChainKernel>();
    MG_ASSIGN_OR_RETURN(kernel->chain_, ParseChain(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }
  Status Compute(KernelContext& c) override {
    constexpr int64_t kPack = ChainBody<T>::kPack;
    MG_ASSIGN_OR_RETURN(const ChainArgs args, BindChain(chain_, c, kPack));
    return ForEach(c, (args.n + kPack - 1) / kPack, ChainBody<T>{args});
  }

 private:
  ChainArgs chain_;
};

}  // namespace

void RegisterChainsCuda(KernelRegistry* registry) {
#define MG_ADD(T)                      \
  registry->Add<DeviceChainKernel<T>>( \
      {.op = "_FusedElementwise", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::elementwise
