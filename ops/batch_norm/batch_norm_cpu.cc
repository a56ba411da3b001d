// Batch normalisation by plain loops: two passes for the statistics (mean, then squares of what is
// left, so that a large mean costs no digits) and one that writes.
//
// Sums are kept per block of rows, whose size is fixed, in float, and over the blocks in double, in
// order: the same bits on any number of threads.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "executor/kernel.h"
#include "ops/batch_norm/check.h"
#include "ops/cpu/float_view_cpu.h"

namespace monograph::ops::batch_norm {

void RegisterGlobal(KernelRegistry* registry);  // global_cpu.cc

namespace {

constexpr int64_t kBlock = 256;  // rows, or elements of a plane where channels come first

// first[k], second[k] = sums over the elements of channel k of fn(offset, k, &a, &b), which sets a
// and b.
template <typename Fn>
Status Sums(KernelContext& c, const Channels& l, const Fn& fn, double* first, double* second) {
  std::fill_n(first, l.channels, 0.0);
  std::fill_n(second, l.channels, 0.0);
  if (l.elements() == 0) return Status();  // of any number of rows
  const bool rows = l.inner == 1;
  const int64_t blocks = rows ? (l.outer + kBlock - 1) / kBlock : l.outer;
  MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(DT_FLOAT, Shape{blocks, 2, l.channels}));
  float* const sums = partial.data<float>();
  const auto row_block = [&](int64_t block) {
    float* __restrict a = sums + block * 2 * l.channels;
    float* __restrict b = a + l.channels;
    std::fill_n(a, 2 * l.channels, 0.f);
    for (int64_t i = block * kBlock; i < std::min(l.outer, (block + 1) * kBlock); ++i) {
      for (int64_t k = 0; k < l.channels; ++k) {
        float p, q;
        fn(i * l.channels + k, k, &p, &q);
        a[k] += p, b[k] += q;
      }
    }
  };
  const auto image = [&](int64_t n) {
    for (int64_t k = 0; k < l.channels; ++k) {
      double total_a = 0, total_b = 0;
      for (int64_t j = 0; j < l.inner; j += kBlock) {
        float a = 0, b = 0;
        for (int64_t e = j; e < std::min(l.inner, j + kBlock); ++e) {
          float p, q;
          fn((n * l.channels + k) * l.inner + e, k, &p, &q);
          a += p, b += q;
        }
        total_a += static_cast<double>(a), total_b += static_cast<double>(b);
      }
      sums[(n * 2 + 0) * l.channels + k] = static_cast<float>(total_a);
      sums[(n * 2 + 1) * l.channels + k] = static_cast<float>(total_b);
    }
  };
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) rows ? row_block(block) : image(block);
  };
  c.ParallelFor(blocks, 1 + l.elements() / std::max<int64_t>(1, blocks) / 4, std::ref(body));
  for (int64_t block = 0; block < blocks; ++block) {
    const float* from = sums + block * 2 * l.channels;
    for (int64_t k = 0; k < l.channels; ++k) {
      first[k] += static_cast<double>(from[k]);
      second[k] += static_cast<double>(from[l.channels + k]);
    }
  }
  return Status();
}

// fn(offset, channel) for every element, rows of channels vectorised.
template <typename Fn>
void ForElements(KernelContext& c, const Channels& l, const Fn& fn) {
  if (l.elements() == 0) return;  // of any number of rows
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (l.inner == 1) {
        for (int64_t k = 0; k < l.channels; ++k) fn(i * l.channels + k, k);
        continue;
      }
      for (int64_t k = 0; k < l.channels; ++k) {
        const int64_t plane = (i * l.channels + k) * l.inner;
        for (int64_t j = 0; j < l.inner; ++j) fn(plane + j, k);
      }
    }
  };
  c.ParallelFor(l.outer, 1 + l.channels * l.inner / 4, std::ref(body));
}

// `tensor` itself if its elements are floats, else a tensor for the floats that become it.
template <typename T>
Result<Tensor> FloatTarget(KernelContext& c, Tensor* tensor) {
  if constexpr (kIs16Bit<T>) {
    return c.AllocateTemp(DT_FLOAT, tensor->shape());
  } else {
    return *tensor;
  }
}

template <typename T>
class ForwardKernel : public Kernel {
 public:
  explicit ForwardKernel(const KernelConstruction& k) : settings_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckForward(c.inputs(), settings_));
    const Tensor x = c.input(0), scale = c.input(1), offset = c.input(2), old_mean = c.input(3),
                 old_variance = c.input(4);
    MG_ASSIGN_OR_RETURN(const Tensor from, ToFloat<T>(c, x));
    MG_ASSIGN_OR_RETURN(Tensor * y, c.AllocateOutput(0, x.shape()));
    Tensor* vectors[4];
    for (int i = 0; i < 4; ++i) {
      MG_ASSIGN_OR_RETURN(vectors[i], c.AllocateOutput(1 + i, Shape{l.channels}));
    }
    Tensor* nothing = nullptr;
    if (c.num_outputs() > 5) {
      MG_ASSIGN_OR_RETURN(nothing, c.AllocateOutput(5, Shape()));
    }
    if (nothing != nullptr) *nothing->data<float>() = 0;
    float *running_mean = vectors[0]->data<float>(), *running_variance = vectors[1]->data<float>(),
          *mean = vectors[2]->data<float>(), *variance = vectors[3]->data<float>();
    if (l.elements() == 0) {
      for (Tensor* vector : vectors)
        std::fill_n(vector->data<float>(), l.channels, std::numeric_limits<float>::quiet_NaN());
      return Status();
    }
    const float* in = from.data<float>();
    if (settings_.training) {
      MG_RETURN_IF_ERROR(Statistics(c, l, in, mean, variance));
      const auto n = static_cast<float>(l.per_channel());
      const float bessel = n > 1 ? n / (n - 1) : 1, f = settings_.factor;
      for (int64_t k = 0; k < l.channels; ++k) {
        running_mean[k] = mean[k], running_variance[k] = variance[k] * bessel;
        if (f == 1.f) continue;
        running_mean[k] = (1 - f) * old_mean.data<float>()[k] + f * running_mean[k];
        running_variance[k] = (1 - f) * old_variance.data<float>()[k] + f * running_variance[k];
      }
    } else {
      for (float* to : {mean, running_mean}) std::copy_n(old_mean.data<float>(), l.channels, to);
      for (float* to : {variance, running_variance})
        std::copy_n(old_variance.data<float>(), l.channels, to);
    }
    MG_ASSIGN_OR_RETURN(Tensor factors, c.AllocateTemp(DT_FLOAT, Shape{l.channels}));
    float* const factor = factors.data<float>();
    for (int64_t k = 0; k < l.channels; ++k)
      factor[k] = scale.data<float>()[k] / std::sqrt(variance[k] + settings_.epsilon);
    MG_ASSIGN_OR_RETURN(Tensor target, FloatTarget<T>(c, y));
    float* out = target.data<float>();
    const float* add = offset.data<float>();
    const auto normalised = [=](int64_t i, int64_t k) {
      return (in[i] - mean[k]) * factor[k] + add[k];
    };
    if (settings_.side || settings_.relu) {
      Tensor beside;
      if (settings_.side) {
        MG_ASSIGN_OR_RETURN(beside, ToFloat<T>(c, c.input(5)));
      }
      const float* side = settings_.side ? beside.data<float>() : nullptr;
      const bool relu = settings_.relu;
      ForElements(c, l, [=](int64_t i, int64_t k) {
        const float value = normalised(i, k) + (side == nullptr ? 0.f : side[i]);
        out[i] = relu && value < 0.f ? 0.f : value;
      });
    } else {
      ForElements(c, l, [=](int64_t i, int64_t k) { out[i] = normalised(i, k); });
    }
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, y);
    return Status();
  }

 private:
  static Status Statistics(KernelContext& c, const Channels& l, const float* x, float* mean,
                           float* variance) {
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_DOUBLE, Shape{2, l.channels}));
    double *first = sums.data<double>(), *second = first + l.channels;
    const auto n = static_cast<double>(l.per_channel());
    MG_RETURN_IF_ERROR(Sums(
        c, l, [=](int64_t i, int64_t, float* a, float* b) { *a = x[i], *b = 0; }, first, second));
    for (int64_t k = 0; k < l.channels; ++k) mean[k] = static_cast<float>(first[k] / n);
    const auto square = [=](int64_t i, int64_t k, float* a, float* b) {
      const float d = x[i] - mean[k];
      *a = d, *b = d * d;
    };
    MG_RETURN_IF_ERROR(Sums(c, l, square, first, second));
    // What rounding left in the mean is taken out again.
    for (int64_t k = 0; k < l.channels; ++k) {
      const double rest = first[k] / n;
      variance[k] = static_cast<float>(std::max(0.0, second[k] / n - rest * rest));
    }
    return Status();
  }

  const Settings settings_;
};

template <typename T>
class BackwardKernel : public Kernel {
 public:
  explicit BackwardKernel(const KernelConstruction& k) : settings_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckBackward(c.inputs(), settings_));
    const Tensor scale = c.input(2), means = c.input(3), variances = c.input(4);
    MG_ASSIGN_OR_RETURN(Tensor gradient, ToFloat<T>(c, c.input(0)));
    MG_ASSIGN_OR_RETURN(const Tensor value, ToFloat<T>(c, c.input(1)));
    if (settings_.relu) {
      MG_ASSIGN_OR_RETURN(gradient, ThroughRelu(c, l, gradient));
    }
    if (settings_.side) {
      MG_ASSIGN_OR_RETURN(Tensor * passing, c.AllocateOutput(5, value.shape()));
      ForElements(c, l,
                  [from = gradient.data<float>(), to = passing->data<T>()](int64_t i, int64_t) {
                    to[i] = Narrow<T>(from[i]);
                  });
    }
    MG_ASSIGN_OR_RETURN(Tensor * dx, c.AllocateOutput(0, value.shape()));
    MG_ASSIGN_OR_RETURN(Tensor * dscale, c.AllocateOutput(1, Shape{l.channels}));
    MG_ASSIGN_OR_RETURN(Tensor * doffset, c.AllocateOutput(2, Shape{l.channels}));
    for (int i : {3, 4}) MG_RETURN_IF_ERROR(c.AllocateOutput(i, Shape{0}).status());
    const float *dy = gradient.data<float>(), *x = value.data<float>(), *mean = means.data<float>();
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_DOUBLE, Shape{2, l.channels}));
    double *first = sums.data<double>(), *second = first + l.channels;
    const auto products = [=](int64_t i, int64_t k, float* a, float* b) {
      *a = dy[i], *b = dy[i] * (x[i] - mean[k]);
    };
    MG_RETURN_IF_ERROR(Sums(c, l, products, first, second));
    // dx = by_gradient * (dy - shift - by_value * (x - mean)); shift and by_value are 0 where mean
    // and variance do not depend on x.
    MG_ASSIGN_OR_RETURN(Tensor factors, c.AllocateTemp(DT_FLOAT, Shape{3, l.channels}));
    float *by_gradient = factors.data<float>(), *shift = by_gradient + l.channels,
          *by_value = shift + l.channels;
    const double n = settings_.training ? static_cast<double>(l.per_channel())
                                        : std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < l.channels; ++k) {
      const double inverse =
          1 / std::sqrt(static_cast<double>(variances.data<float>()[k] + settings_.epsilon));
      doffset->data<float>()[k] = static_cast<float>(first[k]);
      dscale->data<float>()[k] = static_cast<float>(second[k] * inverse);
      by_gradient[k] = static_cast<float>(inverse) * scale.data<float>()[k];
      shift[k] = static_cast<float>(first[k] / n);
      by_value[k] = static_cast<float>(second[k] / n * inverse * inverse);
    }
    MG_ASSIGN_OR_RETURN(Tensor target, FloatTarget<T>(c, dx));
    float* out = target.data<float>();
    ForElements(c, l, [=](int64_t i, int64_t k) {
      out[i] = by_gradient[k] * (dy[i] - shift[k] - by_value[k] * (x[i] - mean[k]));
    });
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, dx);
    return Status();
  }

 private:
  // The gradient, and what is added to it, where y > 0, else 0.
  Result<Tensor> ThroughRelu(KernelContext& c, const Channels& l, const Tensor& gradient) const {
    MG_ASSIGN_OR_RETURN(const Tensor active, ToFloat<T>(c, c.input(7)));
    MG_ASSIGN_OR_RETURN(Tensor masked, c.AllocateTemp(DT_FLOAT, gradient.shape()));
    const float *from = gradient.data<float>(), *value = active.data<float>();
    float* to = masked.data<float>();
    if (settings_.added == 0) {
      ForElements(c, l, [=](int64_t i, int64_t) { to[i] = value[i] > 0.f ? from[i] : 0.f; });
      return masked;
    }
    MG_ASSIGN_OR_RETURN(const Tensor more, ToFloat<T>(c, c.input(8)));
    ForElements(c, l, [=, other = more.data<float>()](int64_t i, int64_t) {
      to[i] = value[i] > 0.f ? Widen(Narrow<T>(from[i] + other[i])) : 0.f;
    });
    return masked;
  }

  const Settings settings_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                                     \
  for (const char* op : {"FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx"})             \
    registry->Add<ForwardKernel<T>>({.op = op, .types = {{"T", kDTypeOf<T>}, {"U", DT_FLOAT}}});   \
  for (const char* op : {"FusedBatchNormGradV2", "FusedBatchNormGradV3", "_FusedBatchNormGradEx"}) \
    registry->Add<BackwardKernel<T>>({.op = op, .types = {{"T", kDTypeOf<T>}, {"U", DT_FLOAT}}});
  ADD(float)
  ADD(half)
  ADD(bfloat16)
#undef ADD
  registry->Add<ForwardKernel<float>>({.op = "FusedBatchNorm"});
  registry->Add<BackwardKernel<float>>({.op = "FusedBatchNormGrad"});
  RegisterGlobal(registry);
}

}  // namespace monograph::ops::batch_norm
