// Adding one value per channel, and the sums that its gradient is.
#include <cstdint>
#include <string>

#include "executor/kernel.h"
#include "ops/channels.h"
#include "ops/gpu/add_bias.h"
#include "ops/gpu/channel_sums.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"
#include "ops/reduce/operators.h"
#include "ops/reduce/rows_cuda.h"

namespace monograph::ops::bias {
namespace {

template <typename T>
class BiasAddKernel : public Kernel {
 public:
  explicit BiasAddKernel(const KernelConstruction& k)
      : nchw_(k.attr<std::string>("data_format") == "NCHW") {}

  Status Compute(KernelContext& c) override {
    const Tensor value = c.input(0), bias = c.input(1);
    MG_ASSIGN_OR_RETURN(const Channels l, ChannelsOf(value.shape(), nchw_));
    MG_RETURN_IF_ERROR(CheckBias(bias.shape(), l, value.shape()));
    const T *x = value.data<T>(), *b = bias.data<T>();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, value.shape()));
    T* y = out->data<T>();
    if (l.elements() == 0) return Status();
    return AddBias(c, l.elements(), l.inner, l.channels, /*relu=*/false, x, b, y);
  }

 private:
  const bool nchw_;
};

template <typename T>
struct SumTerm {
  static constexpr int kSums = 1;
  struct Channel {};
  template <int N>
  struct Item {
    ElementPack<T, N> x;
  };
  const T* x;

  MG_HD Channel channel(int64_t) const { return {}; }
  template <int N>
  MG_HD Item<N> load(int64_t at) const {
    return {LoadPack<T, N>(x + at)};
  }
  template <int N>
  MG_HD void add(const Channel&, const Item<N>& item, int v, float* sums) const {
    sums[0] += static_cast<float>(Widen(item.x.values[v]));
  }
};

template <typename T>
struct StoreSum {
  T* y;
  MG_HD void operator()(int64_t k, const double* sums) const {
    y[k] = Narrow<T>(static_cast<Accumulator<T>>(sums[0]));
  }
};

template <typename T>
class BiasAddGradKernel : public Kernel {
 public:
  explicit BiasAddGradKernel(const KernelConstruction& k)
      : nchw_(k.attr<std::string>("data_format") == "NCHW") {}

  Status Compute(KernelContext& c) override {
    const Tensor in = c.input(0);
    MG_ASSIGN_OR_RETURN(const Channels l, ChannelsOf(in.shape(), nchw_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{l.channels}));
    const T* x = in.data<T>();
    return SumPerChannel<kWidth<T>>(c, l, Aligned({x}), SumTerm<T>{x}, StoreSum<T>{out->data<T>()});
  }

 private:
  const bool nchw_;
};

// Of types that are not summed as floats.
template <typename T>
class WideBiasAddGradKernel : public Kernel {
 public:
  explicit WideBiasAddGradKernel(const KernelConstruction& k)
      : nchw_(k.attr<std::string>("data_format") == "NCHW") {}

  Status Compute(KernelContext& c) override {
    const Tensor in = c.input(0);
    MG_ASSIGN_OR_RETURN(const Channels l, ChannelsOf(in.shape(), nchw_));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{l.channels}));
    if (l.elements() == 0) return DeviceZero(c, out->raw(), out->bytes());
    reduce::ReduceData<T, T> data{in.raw(), out->raw(), false, false, T(1)};
    Tensor planes;
    if (l.inner != 1) {
      MG_ASSIGN_OR_RETURN(planes, c.AllocateTemp(kDTypeOf<T>, Shape{l.outer, l.channels}));
      MG_RETURN_IF_ERROR((reduce::ReduceRows<T, T, reduce::SumOp<T>>(
          c, {in.raw(), planes.raw(), false, false, T(1)}, l.outer * l.channels, l.inner)));
      data.in = planes.raw();
    }
    return reduce::ReduceColumns<T, T, reduce::SumOp<T>>(c, data, 1, l.outer, l.channels);
  }

 private:
  const bool nchw_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T) \
  registry->Add<BiasAddKernel<T>>({.op = "BiasAdd", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(ADD)
#undef ADD
#define ADD(T)                         \
  registry->Add<BiasAddGradKernel<T>>( \
      {.op = "BiasAddGrad", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  ADD(float)
  ADD(half)
  ADD(bfloat16)
#undef ADD
#define ADD(T)                             \
  registry->Add<WideBiasAddGradKernel<T>>( \
      {.op = "BiasAddGrad", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  ADD(double)
  MG_INDEX_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::bias
