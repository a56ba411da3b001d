// BatchNormWithGlobalNormalization and its gradient: with a mean and a variance that are given, per
// channel, the last of four dimensions.
#include <cmath>

#include "executor/kernel.h"
#include "ops/batch_norm/check.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::batch_norm {

void RegisterGlobal(KernelRegistry* registry);

namespace {

Result<Channels> CheckGlobal(const KernelContext& c, std::initializer_list<int> vectors) {
  const Shape& shape = c.input(0).shape();
  if (shape.rank() != 4)
    return InvalidArgument("t must have 4 dimensions, got shape " + shape.ToString());
  MG_ASSIGN_OR_RETURN(const Channels l, ChannelsOf(shape, /*channels_first=*/false));
  static constexpr const char* kNames[] = {"t", "m", "v", "the fourth input", "gamma"};
  for (int i : vectors) MG_RETURN_IF_ERROR(CheckVector(c.input(i), l.channels, kNames[i]));
  return l;
}

template <typename T>
class GlobalKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit GlobalKernel(const KernelConstruction& k)
      : epsilon_(static_cast<A>(k.attr<float>("variance_epsilon"))),
        scales_(k.attr<bool>("scale_after_normalization")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckGlobal(c, {1, 2, 3, 4}));
    const T *mean = c.input(1).data<T>(), *variance = c.input(2).data<T>(),
            *beta = c.input(3).data<T>(), *gamma = c.input(4).data<T>();
    MG_ASSIGN_OR_RETURN(Tensor factors, c.AllocateTemp(kDTypeOf<A>, Shape{l.channels}));
    A* const factor = factors.data<A>();
    for (int64_t k = 0; k < l.channels; ++k) {
      factor[k] = A(1) / std::sqrt(static_cast<A>(variance[k]) + epsilon_);
      if (scales_) factor[k] *= static_cast<A>(gamma[k]);
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(0).shape()));
    if (out->elements() == 0) return Status();  // of any number of rows
    const T* x = c.input(0).data<T>();
    T* y = out->data<T>();
    c.ParallelFor(l.outer, 1 + l.channels / 4, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t k = 0; k < l.channels; ++k) {
          const int64_t at = i * l.channels + k;
          const A centred = static_cast<A>(x[at]) - static_cast<A>(mean[k]);
          y[at] = T(centred * factor[k] + static_cast<A>(beta[k]));
        }
      }
    });
    return Status();
  }

 private:
  const A epsilon_;
  const bool scales_;
};

// With r = 1 / sqrt(v + epsilon), and gamma 1 where it does not scale:
//   dx = g r gamma, dm = -sum(g) r gamma, dv = -sum(g (t - m)) r^3 gamma / 2,
//   db = sum(g), dg = sum(g (t - m)) r, or 0 where it does not scale
template <typename T>
class GlobalGradKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit GlobalGradKernel(const KernelConstruction& k)
      : epsilon_(static_cast<A>(k.attr<float>("variance_epsilon"))),
        scales_(k.attr<bool>("scale_after_normalization")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckGlobal(c, {1, 2, 3}));
    if (!(c.input(4).shape() == c.input(0).shape())) {
      return InvalidArgument("backprop has shape " + c.input(4).shape().ToString() +
                             "; it must have that of t, " + c.input(0).shape().ToString());
    }
    Tensor* out[5];
    for (int i = 0; i < 5; ++i) {
      MG_ASSIGN_OR_RETURN(out[i],
                          c.AllocateOutput(i, i == 0 ? c.input(0).shape() : Shape{l.channels}));
    }
    if (l.channels == 0) return Status();  // any number of rows
    const T *x = c.input(0).data<T>(), *mean = c.input(1).data<T>(),
            *variance = c.input(2).data<T>(), *gamma = c.input(3).data<T>(),
            *g = c.input(4).data<T>();
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_DOUBLE, Shape{2, l.channels}));
    double *const of_g = sums.data<double>(), *const of_products = of_g + l.channels;
    std::fill_n(of_g, 2 * l.channels, 0.0);
    for (int64_t i = 0; i < l.outer && !c.cancelled(); ++i) {
      for (int64_t k = 0; k < l.channels; ++k) {
        const auto gradient = static_cast<double>(static_cast<A>(g[i * l.channels + k]));
        const A centred = static_cast<A>(x[i * l.channels + k]) - static_cast<A>(mean[k]);
        of_g[k] += gradient;
        of_products[k] += gradient * static_cast<double>(centred);
      }
    }
    MG_ASSIGN_OR_RETURN(Tensor factors, c.AllocateTemp(kDTypeOf<A>, Shape{l.channels}));
    A* const factor = factors.data<A>();
    for (int64_t k = 0; k < l.channels; ++k) {
      const A r = A(1) / std::sqrt(static_cast<A>(variance[k]) + epsilon_);
      const A sum = static_cast<A>(of_g[k]), product = static_cast<A>(of_products[k]);
      factor[k] = scales_ ? r * static_cast<A>(gamma[k]) : r;
      out[1]->data<T>()[k] = T(-sum * factor[k]);
      out[2]->data<T>()[k] = T(A(-0.5) * product * factor[k] * r * r);
      out[3]->data<T>()[k] = T(sum);
      out[4]->data<T>()[k] = T(scales_ ? product * r : A(0));
    }
    T* dx = out[0]->data<T>();
    c.ParallelFor(l.outer, 1 + l.channels / 4, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin * l.channels; i < end * l.channels;) {
        for (int64_t k = 0; k < l.channels; ++k, ++i) dx[i] = T(static_cast<A>(g[i]) * factor[k]);
      }
    });
    return Status();
  }

 private:
  const A epsilon_;
  const bool scales_;
};

}  // namespace

void RegisterGlobal(KernelRegistry* registry) {
#define MG_ADD(T)                                                                 \
  registry->Add<GlobalKernel<T>>(                                                 \
      {.op = "BatchNormWithGlobalNormalization", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<GlobalGradKernel<T>>(                                             \
      {.op = "BatchNormWithGlobalNormalizationGrad", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::batch_norm
