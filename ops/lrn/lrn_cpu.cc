// Local response normalisation by plain loops over the channels of a pixel, which become vector
// code. The gradient, with n = bias + alpha * sum of squares:
//   dx[k] = g[k] n[k]^-beta - 2 alpha beta x[k] * sum over the window around k of g[j] y[j] / n[j]
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/independent_loop.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/elementwise/math.h"

namespace monograph::ops::lrn {
namespace {

// to[k] = the sum of x[j] for |j - k| <= radius, of `n` channels. Of very many it takes long.
void WindowSums(const KernelContext& c, const float* x, int64_t n, int64_t radius, float* to) {
  std::copy_n(x, n, to);
  for (int64_t away = 1; away <= std::min(radius, n - 1); ++away) {
    if (away % 64 == 0 && c.cancelled()) return;
    MG_INDEPENDENT_LOOP
    for (int64_t k = away; k < n; ++k) to[k] += x[k - away];
    MG_INDEPENDENT_LOOP
    for (int64_t k = 0; k < n - away; ++k) to[k] += x[k + away];
  }
}

struct Settings {
  explicit Settings(const KernelConstruction& k)
      : radius(k.attr<int64_t>("depth_radius")),
        bias(k.attr<float>("bias")),
        alpha(k.attr<float>("alpha")),
        beta(k.attr<float>("beta")) {}

  Status Check() const {
    if (radius >= 0) return Status();
    return InvalidArgument("depth_radius must not be negative, got " + std::to_string(radius));
  }

  // norm[k] = bias + alpha * sum of squares around k, and power[k] = norm[k]^-beta; `squares` is
  // scratch.
  void Norms(const KernelContext& c, const float* x, int64_t n, float* squares, float* norm,
             float* power) const {
    MG_INDEPENDENT_LOOP
    for (int64_t k = 0; k < n; ++k) squares[k] = x[k] * x[k];
    WindowSums(c, squares, n, radius, norm);
    MG_INDEPENDENT_LOOP
    for (int64_t k = 0; k < n; ++k) {
      norm[k] = bias + alpha * norm[k];
      power[k] = elementwise::ExpF(-beta * elementwise::LogF(norm[k]));
    }
  }

  const int64_t radius;
  const float bias, alpha, beta;
};

Status CheckImages(const KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  if (shape.rank() != 4)
    return InvalidArgument("the input must have 4 dimensions, got shape " + shape.ToString());
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!(c.input(i).shape() == shape)) {
      return InvalidArgument("all inputs must have one shape, got " + shape.ToString() + " and " +
                             c.input(i).shape().ToString());
    }
  }
  return Status();
}

// Calls fn(offset of a pixel, scratch of `vectors` times the channels) for each pixel.
template <typename Fn>
Status ForPixels(KernelContext& c, int64_t vectors, int64_t radius, const Fn& fn) {
  const Shape& shape = c.input(0).shape();
  const int64_t channels = shape[3], pixels = channels == 0 ? 0 : shape.elements() / channels;
  if (pixels == 0) return Status();  // of any number of channels
  constexpr int64_t kPixels = 64;    // that share scratch memory
  const int64_t blocks = (pixels + kPixels - 1) / kPixels;
  MG_ASSIGN_OR_RETURN(Tensor scratch, c.AllocateTemp(DT_FLOAT, Shape{blocks, vectors * channels}));
  float* const memory = scratch.data<float>();
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      for (int64_t p = block * kPixels; p < std::min(pixels, (block + 1) * kPixels); ++p)
        fn(p * channels, memory + block * vectors * channels);
    }
  };
  const double cost = static_cast<double>(kPixels) * static_cast<double>(channels) *
                      (5 + static_cast<double>(std::min(radius, channels)) / 4);
  c.ParallelFor(blocks, static_cast<int64_t>(std::min(cost, 1e15)), std::ref(body));
  return Status();
}

template <typename T>
class LRNKernel : public Kernel {
 public:
  explicit LRNKernel(const KernelConstruction& k) : settings_(k) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(settings_.Check());
    MG_RETURN_IF_ERROR(CheckImages(c));
    MG_ASSIGN_OR_RETURN(const Tensor wide, ToFloat<T>(c, c.input(0)));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, wide.shape()));
    Tensor target = *out;
    if constexpr (kIs16Bit<T>) {
      MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(DT_FLOAT, wide.shape()));
    }
    const float* const x = wide.data<float>();
    float* const y = target.data<float>();
    const int64_t n = wide.shape()[3];
    MG_RETURN_IF_ERROR(ForPixels(c, 3, settings_.radius, [&](int64_t at, float* scratch) {
      float* const power = scratch + 2 * n;
      settings_.Norms(c, x + at, n, scratch, scratch + n, power);
      for (int64_t k = 0; k < n; ++k) y[at + k] = x[at + k] * power[k];
    }));
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  const Settings settings_;
};

template <typename T>
class LRNGradKernel : public Kernel {
 public:
  explicit LRNGradKernel(const KernelConstruction& k) : settings_(k) {}
  Status Compute(KernelContext& c) override {
    MG_RETURN_IF_ERROR(settings_.Check());
    MG_RETURN_IF_ERROR(CheckImages(c));
    MG_ASSIGN_OR_RETURN(const Tensor gradients, ToFloat<T>(c, c.input(0)));
    MG_ASSIGN_OR_RETURN(const Tensor images, ToFloat<T>(c, c.input(1)));
    MG_ASSIGN_OR_RETURN(const Tensor results, ToFloat<T>(c, c.input(2)));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, images.shape()));
    Tensor target = *out;
    if constexpr (kIs16Bit<T>) {
      MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(DT_FLOAT, images.shape()));
    }
    const float *const g = gradients.data<float>(), *const x = images.data<float>(),
                       *const y = results.data<float>();
    float* const dx = target.data<float>();
    const int64_t n = images.shape()[3];
    const float slope = 2 * settings_.alpha * settings_.beta;
    MG_RETURN_IF_ERROR(ForPixels(c, 4, settings_.radius, [&](int64_t at, float* scratch) {
      float *const ratio = scratch, *const norm = scratch + n, *const power = norm + n,
                   *const sums = power + n;
      settings_.Norms(c, x + at, n, scratch, norm, power);
      for (int64_t k = 0; k < n; ++k) ratio[k] = g[at + k] * y[at + k] / norm[k];
      WindowSums(c, ratio, n, settings_.radius, sums);
      for (int64_t k = 0; k < n; ++k)
        dx[at + k] = g[at + k] * power[k] - slope * x[at + k] * sums[k];
    }));
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  const Settings settings_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define MG_ADD(T)                                                            \
  registry->Add<LRNKernel<T>>({.op = "LRN", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<LRNGradKernel<T>>({.op = "LRNGrad", .types = {{"T", kDTypeOf<T>}}});
  MG_ADD(float) MG_ADD(half) MG_ADD(bfloat16)
#undef MG_ADD
}

}  // namespace monograph::ops::lrn
