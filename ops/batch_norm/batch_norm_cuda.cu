// Batch normalisation: one pass over the values for the statistics, about a value of the channel's
// own, so that a large mean costs no digits; and one pass that writes. The gradient: one pass for
// its two sums, and one that writes; where a residual joins, the first also adds up the gradients
// that come back and lets them pass the ReLU. All that is between is a few numbers per channel.
// cuDNN stands beside what has no activation behind it (ops/gpu/cudnn_layer.h).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "executor/kernel.h"
#include "ops/batch_norm/check.h"
#include "ops/gpu/channel_sums.h"
#include "ops/gpu/cudnn_layer.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops::batch_norm {
namespace {

// Where a channel's first element lies.
MG_HD inline int64_t FirstOf(int64_t k, int64_t inner) { return k * inner; }

template <typename T>
struct Moments {
  static constexpr int kSums = 2;
  struct Channel {
    float origin;
  };
  template <int N>
  struct Item {
    ElementPack<T, N> x;
  };
  const T* x;
  int64_t inner;

  MG_HD Channel channel(int64_t k) const { return {Widen(x[FirstOf(k, inner)])}; }
  template <int N>
  MG_HD Item<N> load(int64_t at) const {
    return {LoadPack<T, N>(x + at)};
  }
  template <int N>
  MG_HD void add(const Channel& of, const Item<N>& item, int v, float* sums) const {
    const float d = Widen(item.x.values[v]) - of.origin;
    sums[0] += d;
    sums[1] += d * d;
  }
};

// What the op gives of a channel besides y.
struct Averages {
  double n;
  float averaging;
  const float *old_mean, *old_variance;  // only if averaging < 1
  float *mean, *variance, *running_mean, *running_variance;
  float* nothing;  // reserve_space_3 of V3: one 0; nullptr for V1 and V2

  MG_HD void Keep(int64_t k, float m, float v) const {
    if (k == 0 && nothing != nullptr) *nothing = 0;
    const float unbiased = v * static_cast<float>(n > 1 ? n / (n - 1) : 1);
    const bool average = averaging != 1.f;
    mean[k] = m;
    variance[k] = v;
    running_mean[k] = average ? (1 - averaging) * old_mean[k] + averaging * m : m;
    running_variance[k] =
        average ? (1 - averaging) * old_variance[k] + averaging * unbiased : unbiased;
  }
};

// What the writing pass reads of a channel: y = (x - mean) * factor + offset.
template <typename T>
struct FinishMoments {
  const T* x;
  int64_t inner;
  float epsilon;
  const float* scale;
  Averages averages;
  float* factor;

  MG_HD void operator()(int64_t k, const double* sums) const {
    const double shift = sums[0] / averages.n;
    const double centred = sums[1] / averages.n - shift * shift;
    const auto m = static_cast<float>(static_cast<double>(Widen(x[FirstOf(k, inner)])) + shift);
    const auto v = static_cast<float>(centred > 0 ? centred : 0);
    averages.Keep(k, m, v);
    factor[k] = scale[k] / std::sqrt(v + epsilon);
  }
};

// From what cuDNN gives: the mean, where it belongs, and 1 / sqrt(variance + epsilon).
struct FinishCudnn {
  float epsilon;
  const float* inverse;
  Averages averages;

  MG_HD void operator()(int64_t k) const {
    const double i = static_cast<double>(inverse[k]);
    const double v = 1 / (i * i) - static_cast<double>(epsilon);
    averages.Keep(k, averages.mean[k], v > 0 ? static_cast<float>(v) : 0.f);
  }
};

// What cuDNN's gradient wants.
struct InverseDeviation {
  float epsilon;
  const float* variance;
  float* inverse;
  MG_HD void operator()(int64_t k) const { inverse[k] = 1.f / std::sqrt(variance[k] + epsilon); }
};

// The same from a given mean and variance.
struct CopyMoments {
  float epsilon;
  const float *scale, *old_mean, *old_variance;
  float *mean, *variance, *running_mean, *running_variance, *factor, *nothing;

  MG_HD void operator()(int64_t k) const {
    if (k == 0 && nothing != nullptr) *nothing = 0;
    mean[k] = running_mean[k] = old_mean[k];
    variance[k] = running_variance[k] = old_variance[k];
    factor[k] = scale[k] / std::sqrt(old_variance[k] + epsilon);
  }
};

struct Fill {
  float value;
  float* to;
  MG_HD void operator()(int64_t i) const { to[i] = value; }
};

template <typename T>
struct Normalize {
  static constexpr int kResident = 4;
  const T* x;
  const float *mean, *factor, *offset;
  T* y;
  int64_t channels;
  const T* side = nullptr;  // added, if there is one
  bool relu = false;        // and then what is negative becomes 0

  MG_HD static float Value(T in, float m, float f, float o) { return (Widen(in) - m) * f + o; }
  MG_HD T Cut(float value) const { return Narrow<T>(relu && value < 0.f ? 0.f : value); }

  // All loads are under way before the first store, which might change what is loaded.
  template <int N, int kRows>
  MG_HD void run(int64_t row, int64_t k) const {
    const int64_t at = row * channels + k;
    ElementPack<T, N> in[kRows], more[kRows] = {};
    MG_UNROLL
    for (int r = 0; r < kRows; ++r) in[r] = LoadPack<T, N>(x + at + r * channels);
    if (side != nullptr) {
      MG_UNROLL
      for (int r = 0; r < kRows; ++r) more[r] = LoadPack<T, N>(side + at + r * channels);
    }
    const auto m = LoadPack<float, N>(mean + k), f = LoadPack<float, N>(factor + k),
               o = LoadPack<float, N>(offset + k);
    MG_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ElementPack<T, N> out;
      MG_UNROLL
      for (int v = 0; v < N; ++v) {
        float value = Value(in[r].values[v], m.values[v], f.values[v], o.values[v]);
        if (side != nullptr) value += Widen(more[r].values[v]);
        out.values[v] = Cut(value);
      }
      StorePack<T, N>(y + at + r * channels, out);
    }
  }
  MG_HD void element(int64_t i, int64_t k) const {
    const float value = Value(x[i], mean[k], factor[k], offset[k]);
    y[i] = Cut(side == nullptr ? value : value + Widen(side[i]));
  }
};

// Channels first: body.element(i, channel).
template <typename Body>
struct PlaneElements {
  Body body;
  Divisor inner, channels;
  MG_HD void operator()(int64_t i) const {
    const int64_t plane = inner.Divide(i);
    body.element(i, plane - channels.Divide(plane) * channels.divisor());
  }
};

template <int kWide, typename Body>
Status Write(KernelContext& c, const Channels& l, bool wide, const Body& body) {
  if (l.elements() == 0) return Status();
  if (l.inner != 1)
    return ForEach(c, l.elements(),
                   PlaneElements<Body>{body, Divisor(l.inner), Divisor(l.channels)});
  const auto rows = [&](auto width) {
    using Each = ChannelRows<Body, width()>;
    const int64_t packs = l.channels / width();
    return ForEach(c, (l.outer + Each::kRows - 1) / Each::kRows * packs,
                   Each{body, Divisor(packs), l.outer});
  };
  if (wide && l.channels % kWide == 0) return rows(std::integral_constant<int, kWide>());
  return rows(std::integral_constant<int, 1>());
}

template <typename T>
LayerCall CallOf(Layer layer, const Settings& settings, const Shape& shape, const Channels& l) {
  const int64_t images = shape[0],
                columns = shape[settings.rank - (settings.channels_first ? 1 : 2)];
  const int64_t pixels = l.per_channel() / std::max<int64_t>(images, 1);
  return {.layer = layer,
          .dtype = kDTypeOf<T>,
          .nchw = settings.channels_first,
          .image = {images, l.channels, pixels / std::max<int64_t>(columns, 1), columns},
          .epsilon = settings.epsilon};
}

template <typename T>
class ForwardKernel : public Kernel {
 public:
  explicit ForwardKernel(const KernelConstruction& k) : settings_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckForward(c.inputs(), settings_));
    const Tensor in = c.input(0);
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, in.shape()));
    float* vectors[4];
    for (int i = 0; i < 4; ++i) {
      MG_ASSIGN_OR_RETURN(Tensor * vector, c.AllocateOutput(1 + i, Shape{l.channels}));
      vectors[i] = vector->data<float>();
    }
    Tensor* nothing = nullptr;
    if (c.num_outputs() > 5) {
      MG_ASSIGN_OR_RETURN(nothing, c.AllocateOutput(5, Shape()));
    }
    float* const zero = nothing == nullptr ? nullptr : nothing->data<float>();
    if (l.elements() == 0) {
      if (nothing != nullptr) MG_RETURN_IF_ERROR(DeviceZero(c, nothing->raw(), nothing->bytes()));
      for (float* vector : vectors) {
        MG_RETURN_IF_ERROR(
            ForEach(c, l.channels, Fill{std::numeric_limits<float>::quiet_NaN(), vector}));
      }
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor factors, c.AllocateTemp(DT_FLOAT, Shape{l.channels}));
    const T* x = in.data<T>();
    const float *scale = c.input(1).data<float>(), *offset = c.input(2).data<float>(),
                *old_mean = c.input(3).data<float>(), *old_variance = c.input(4).data<float>();
    float *running_mean = vectors[0], *running_variance = vectors[1], *mean = vectors[2],
          *variance = vectors[3], *factor = factors.data<float>();
    T* out = y->data<T>();
    const T* side = settings_.side ? c.input(5).data<T>() : nullptr;
    const auto write = [&] {
      return Write<kWidth<T>>(
          c, l, Aligned({x, out, mean, factor, offset, side}),
          Normalize<T>{x, mean, factor, offset, out, l.channels, side, settings_.relu});
    };
    if (!settings_.training) {
      MG_RETURN_IF_ERROR(
          ForEach(c, l.channels,
                  CopyMoments{settings_.epsilon, scale, old_mean, old_variance, mean, variance,
                              running_mean, running_variance, factor, zero}));
      return write();
    }
    const Averages averages{static_cast<double>(l.per_channel()),
                            settings_.factor,
                            old_mean,
                            old_variance,
                            mean,
                            variance,
                            running_mean,
                            running_variance,
                            zero};
    const auto own = [&] {
      MG_RETURN_IF_ERROR(SumPerChannel<kWidth<T>>(
          c, l, Aligned({x}), Moments<T>{x, l.inner},
          FinishMoments<T>{x, l.inner, settings_.epsilon, scale, averages, factor}));
      return write();
    };
    if (settings_.side || settings_.relu) return own();
    LayerCall call = CallOf<T>(Layer::kBatchNorm, settings_, in.shape(), l);
    call.in = {x, scale, offset}, call.out = {out, mean, factor};
    return layer_.Run(c, call, own, [&](const auto& cudnn) {
      MG_RETURN_IF_ERROR(cudnn());
      return ForEach(c, l.channels, FinishCudnn{settings_.epsilon, factor, averages});
    });
  }

 private:
  const Settings settings_;
  CudnnLayer layer_;
};

// What passes a ReLU: the gradient where the normalised value, computed anew as Normalize does, is
// above 0.
template <typename T>
MG_HD inline float Passing(bool relu, T gradient, T in, float m, float f, float o) {
  const float g = Widen(gradient);
  if (!relu) return g;
  // What is not above this rounds to 0: half of the least T above 0.
  constexpr float kHalfOfLeast = std::is_same_v<T, bfloat16> ? 0x1p-134f
                                 : std::is_same_v<T, half>   ? 0x1p-25f
                                                             : 0.f;
  return Normalize<T>::Value(in, m, f, o) > kHalfOfLeast ? g : 0.f;
}

template <typename T>
struct GradientTerms {
  static constexpr int kSums = 2;
  struct Channel {
    float mean, factor, offset;
  };
  template <int N>
  struct Item {
    ElementPack<T, N> dy, x;
  };
  const T *dy, *x;
  const float *mean, *variance, *scale, *offset;  // the last three only for a ReLU
  float epsilon;
  bool relu;

  MG_HD Channel channel(int64_t k) const {
    if (!relu) return {mean[k], 0, 0};
    return {mean[k], scale[k] / std::sqrt(variance[k] + epsilon), offset[k]};
  }
  template <int N>
  MG_HD Item<N> load(int64_t at) const {
    return {LoadPack<T, N>(dy + at), LoadPack<T, N>(x + at)};
  }
  template <int N>
  MG_HD void add(const Channel& of, const Item<N>& item, int v, float* sums) const {
    const T in = item.x.values[v];
    const float gradient = Passing(relu, item.dy.values[v], in, of.mean, of.factor, of.offset);
    sums[0] += gradient;
    sums[1] += gradient * (Widen(in) - of.mean);
  }
};

// The same where y = relu(normalised x + side input). The gradient of the sum, which is also the
// side input's, is kept for the pass that writes, in the memory of dy or of `added` if it may be.
template <typename T>
struct JoinTerms {
  static constexpr int kSums = 2, kAhead = 2;
  struct Channel {
    float mean;
  };
  template <int N>
  struct Item {
    ElementPack<T, N> dy, added, y, x;
  };
  const T *dy, *added, *y, *x;  // added: nullptr if there is nothing
  const float* mean;
  T* passing;

  MG_HD Channel channel(int64_t k) const { return {mean[k]}; }
  template <int N>
  MG_HD Item<N> load(int64_t at) const {
    Item<N> item{LoadPack<T, N>(dy + at), {}, LoadPack<T, N>(y + at), LoadPack<T, N>(x + at)};
    if (added != nullptr) item.added = LoadPack<T, N>(added + at);
    return item;
  }
  // Rounded as AddN and ReluGrad round.
  template <int N>
  MG_HD void settle(int64_t at, Item<N>& item) const {
    MG_UNROLL
    for (int v = 0; v < N; ++v) {
      float gradient = Widen(item.dy.values[v]);
      if (added != nullptr) gradient = Widen(Narrow<T>(gradient + Widen(item.added.values[v])));
      item.dy.values[v] = Narrow<T>(Widen(item.y.values[v]) > 0.f ? gradient : 0.f);
    }
    StorePack<T, N>(passing + at, item.dy);
  }
  template <int N>
  MG_HD void add(const Channel& of, const Item<N>& item, int v, float* sums) const {
    const float gradient = Widen(item.dy.values[v]);
    sums[0] += gradient;
    sums[1] += gradient * (Widen(item.x.values[v]) - of.mean);
  }
};

// What the writing pass reads of a channel: dx = by_gradient * (dy - shift - by_value * (x -
// mean)).
struct FinishGradient {
  double n;  // infinite where mean and variance do not depend on x
  float epsilon;
  const float *scale, *variance;
  float *dscale, *doffset, *by_gradient, *shift, *by_value, *factor;

  MG_HD void operator()(int64_t k, const double* sums) const {
    const double inverse = 1 / std::sqrt(static_cast<double>(variance[k] + epsilon));
    doffset[k] = static_cast<float>(sums[0]);
    dscale[k] = static_cast<float>(sums[1] * inverse);
    by_gradient[k] = static_cast<float>(inverse) * scale[k];
    shift[k] = static_cast<float>(sums[0] / n);
    by_value[k] = static_cast<float>(sums[1] / n * inverse * inverse);
    factor[k] = scale[k] / std::sqrt(variance[k] + epsilon);
  }
};

template <typename T, bool kRelu>
struct Differentiate {
  static constexpr int kResident = kRelu ? 3 : 4;
  const T *dy, *x;
  const float *mean, *by_gradient, *shift, *by_value;
  T* dx;
  int64_t channels;
  const float *factor, *offset;  // for a ReLU

  MG_HD static T One(float g, T in, float m, float a, float s, float b) {
    return Narrow<T>(a * (g - s - b * (Widen(in) - m)));
  }

  template <int N, int kRows>
  MG_HD void run(int64_t row, int64_t k) const {
    const int64_t at = row * channels + k;
    ElementPack<T, N> g[kRows], in[kRows];
    MG_UNROLL
    for (int r = 0; r < kRows; ++r) {
      g[r] = LoadPack<T, N>(dy + at + r * channels);
      in[r] = LoadPack<T, N>(x + at + r * channels);
    }
    const auto m = LoadPack<float, N>(mean + k), a = LoadPack<float, N>(by_gradient + k),
               s = LoadPack<float, N>(shift + k), b = LoadPack<float, N>(by_value + k);
    ElementPack<float, N> f = m, o = m;
    if constexpr (kRelu) {
      f = LoadPack<float, N>(factor + k);
      o = LoadPack<float, N>(offset + k);
    }
    MG_UNROLL
    for (int r = 0; r < kRows; ++r) {
      ElementPack<T, N> out;
      MG_UNROLL
      for (int v = 0; v < N; ++v) {
        const float passing =
            Passing(kRelu, g[r].values[v], in[r].values[v], m.values[v], f.values[v], o.values[v]);
        out.values[v] =
            One(passing, in[r].values[v], m.values[v], a.values[v], s.values[v], b.values[v]);
      }
      StorePack<T, N>(dx + at + r * channels, out);
    }
  }
  MG_HD void element(int64_t i, int64_t k) const {
    const float passing = kRelu ? Passing(true, dy[i], x[i], mean[k], factor[k], offset[k])
                                : Passing(false, dy[i], x[i], 0.f, 0.f, 0.f);
    dx[i] = One(passing, x[i], mean[k], by_gradient[k], shift[k], by_value[k]);
  }
};

template <typename T>
class BackwardKernel : public Kernel {
 public:
  explicit BackwardKernel(const KernelConstruction& k) : settings_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckBackward(c.inputs(), settings_));
    const T *dy = c.input(0).data<T>(), *x = c.input(1).data<T>();
    const float *scale = c.input(2).data<float>(), *mean = c.input(3).data<float>(),
                *variance = c.input(4).data<float>();
    const Shape shape = c.input(1).shape();
    LayerCall call = CallOf<T>(Layer::kBatchNormGrad, settings_, shape, l);
    call.in = {x, dy, scale, mean};
    const bool alone = settings_.training && !settings_.relu;  // cuDNN has only that
    // What passes a join takes the memory of dy, and dx that of what was added.
    const bool joins = settings_.side, adds = settings_.added > 0;
    MG_ASSIGN_OR_RETURN(Tensor * out, (alone && CudnnLayer::Considered(c, call)) || (joins && !adds)
                                          ? c.AllocateOutput(0, shape)
                                          : c.ForwardOrAllocate(joins ? 8 : 0, 0, shape));
    T* passing = nullptr;
    if (joins) {
      MG_ASSIGN_OR_RETURN(Tensor * passed, c.ForwardOrAllocate(0, 5, shape));
      passing = passed->data<T>();
    }
    MG_ASSIGN_OR_RETURN(Tensor * dscale, c.AllocateOutput(1, Shape{l.channels}));
    MG_ASSIGN_OR_RETURN(Tensor * doffset, c.AllocateOutput(2, Shape{l.channels}));
    for (int i : {3, 4}) MG_RETURN_IF_ERROR(c.AllocateOutput(i, Shape{0}).status());
    // Each vector begins where 16 bytes may be read.
    const int64_t stride = (l.channels + 3) / 4 * 4;
    MG_ASSIGN_OR_RETURN(Tensor factors, c.AllocateTemp(DT_FLOAT, Shape{4, stride}));
    float *by_gradient = factors.data<float>(), *shift = by_gradient + stride,
          *by_value = shift + stride, *factor = by_value + stride;
    const double n = settings_.training ? static_cast<double>(l.per_channel())
                                        : std::numeric_limits<double>::infinity();
    const bool relu = settings_.relu && !joins;  // where x says what passes
    const float* offset = relu ? c.input(6).data<float>() : nullptr;
    const FinishGradient finish{n,
                                settings_.epsilon,
                                scale,
                                variance,
                                dscale->data<float>(),
                                doffset->data<float>(),
                                by_gradient,
                                shift,
                                by_value,
                                factor};
    T* dx = out->data<T>();
    const auto write = [&](auto with_relu, const T* from) {
      return Write<kWidth<T>>(
          c, l, Aligned({from, x, dx, mean, offset}),
          Differentiate<T, with_relu()>{from, x, mean, by_gradient, shift, by_value, dx, l.channels,
                                        factor, offset});
    };
    if (joins) {
      const T *added = adds ? c.input(8).data<T>() : nullptr, *y = c.input(7).data<T>();
      MG_RETURN_IF_ERROR(SumPerChannel<kWidth<T>>(c, l, Aligned({dy, added, y, x, passing}),
                                                  JoinTerms<T>{dy, added, y, x, mean, passing},
                                                  finish));
      return write(std::false_type(), passing);
    }
    const auto own = [&] {
      MG_RETURN_IF_ERROR(SumPerChannel<kWidth<T>>(
          c, l, Aligned({dy, x}),
          GradientTerms<T>{dy, x, mean, variance, scale, offset, settings_.epsilon, relu}, finish));
      return relu ? write(std::true_type(), dy) : write(std::false_type(), dy);
    };
    if (!alone) return own();
    float* inverse = factor;
    call.in[4] = inverse, call.out = {dx, dscale->data<float>(), doffset->data<float>()};
    return layer_.Run(c, call, own, [&](const auto& cudnn) {
      MG_RETURN_IF_ERROR(
          ForEach(c, l.channels, InverseDeviation{settings_.epsilon, variance, inverse}));
      return cudnn();
    });
  }

 private:
  const Settings settings_;
  CudnnLayer layer_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                           \
  for (const char* op : {"FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"}) { \
    registry->Add<ForwardKernel<T>>(                                                     \
        {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}, {"U", DT_FLOAT}}});     \
  }                                                                                      \
  for (const char* op :                                                                  \
       {"FusedBatchNormGradV2", "FusedBatchNormGradV3", "_FusedBatchNormGradEx"}) {      \
    registry->Add<BackwardKernel<T>>(                                                    \
        {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}, {"U", DT_FLOAT}}});     \
  }
  ADD(float)
  ADD(half)
  ADD(bfloat16)
#undef ADD
  registry->Add<ForwardKernel<float>>({.op = "FusedBatchNorm", .device = kGpu});
  registry->Add<BackwardKernel<float>>({.op = "FusedBatchNormGrad", .device = kGpu});
}

}  // namespace monograph::ops::batch_norm
