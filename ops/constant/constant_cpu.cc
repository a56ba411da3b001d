#include <cmath>

#include "executor/kernel.h"
#include "ops/constant/fill_kernels.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/tensor_util_cpu.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::constant {
namespace {

class ConstKernel : public Kernel {
 public:
  explicit ConstKernel(const KernelConstruction& k) : value_(k.attr<Tensor>("value")) {}
  Status Compute(KernelContext& c) override {
    c.set_output(0, value_);  // shared; nobody writes it, because this kernel holds it too
    return Status();
  }

 private:
  const Tensor value_;
};

// Runs only if the step was not fed.
class PlaceholderKernel : public Kernel {
 public:
  explicit PlaceholderKernel(const KernelConstruction& k)
      : message_("You must feed a value for placeholder tensor '" + std::string(k.node_name()) +
                 "' with dtype " + std::string(DTypeName(k.output_dtype(0))) + " and shape " +
                 k.output_shape(0).ToString()) {}
  Status Compute(KernelContext&) override { return InvalidArgument(message_); }

 private:
  const std::string message_;
};

class PassKernel : public Kernel {
 public:
  explicit PassKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    c.set_output(0, c.TakeInput(0));
    return Status();
  }
};

template <typename T>
class RangeKernel : public Kernel {
 public:
  explicit RangeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    for (int i = 0; i < 3; ++i) {
      if (c.input(i).elements() != 1)
        return InvalidArgument("start, limit and delta must be scalars");
    }
    using C = Accumulator<T>;
    const C start = c.input(0).scalar<T>(), limit = c.input(1).scalar<T>(),
            delta = c.input(2).scalar<T>();
    if (delta == 0) return InvalidArgument("delta must not be 0");
    if (delta > 0 ? start > limit : start < limit) {
      return InvalidArgument("a range from " + std::to_string(start) + " to " +
                             std::to_string(limit) + " by " + std::to_string(delta) +
                             " never gets there");
    }
    int64_t size;
    if constexpr (std::is_integral_v<T>) {
      const auto distance = delta > 0 ? static_cast<uint64_t>(limit) - static_cast<uint64_t>(start)
                                      : static_cast<uint64_t>(start) - static_cast<uint64_t>(limit);
      const auto step = delta > 0 ? static_cast<uint64_t>(delta) : 0 - static_cast<uint64_t>(delta);
      size = static_cast<int64_t>(distance / step + (distance % step != 0 ? 1 : 0));
      if (size < 0) return InvalidArgument("the range has too many elements");
    } else {
      const double exact = std::ceil(std::abs(
          (static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta)));
      if (!(exact < 1e15)) return InvalidArgument("the range has too many elements");
      size = static_cast<int64_t>(exact);
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{size}));
    T* to = out->data<T>();
    T value = static_cast<T>(start);
    InPieces(c, size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i, value = static_cast<T>(static_cast<C>(value) + delta))
        to[i] = value;
    });
    return Status();
  }
};

class ZerosLikeVariantKernel : public Kernel {
 public:
  explicit ZerosLikeVariantKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor zeros, ZerosLikeTensor(c, c.input(0)));
    c.set_output(0, std::move(zeros));
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<ConstKernel>({.op = "Const", .cost = KernelCost::kCheap});
  registry->Add<PlaceholderKernel>({.op = "Placeholder", .cost = KernelCost::kCheap});
  registry->Add<PassKernel>({.op = "PlaceholderWithDefault", .cost = KernelCost::kCheap});
  AddForPlainTypes<FillKernel<HostMoves>>(registry, {.op = "Fill", .host_args = {"dims"}});
  AddForPlainTypes<ZerosLikeKernel<HostMoves>>(registry, {.op = "ZerosLike"});
  registry->Add<ZerosLikeVariantKernel>({.op = "ZerosLike", .types = {{"T", DT_VARIANT}}});
  AddForPlainTypes<OnesLikeKernel<HostMoves>>(registry, {.op = "OnesLike"});
#define MG_ADD(T)                                                                    \
  registry->Add<RangeKernel<T>>({.op = "Range",                                      \
                                 .types = {{"Tidx", kDTypeOf<T>}},                   \
                                 .host_args = {"start", "limit", "delta", "output"}, \
                                 .cost = KernelCost::kCheap});
  MG_ADD(int32_t)
  MG_ADD(int64_t)
  MG_ADD(float)
  MG_ADD(double)
  MG_ADD(bfloat16)
#undef MG_ADD
}

}  // namespace monograph::ops::constant
