// Batch normalisation by plain loops: one pass for the statistics (of the squares of what is left
// of a mean, so that a large one costs no digits) and one that writes.
//
// Sums are kept per block of rows, whose size is fixed, in float, and over the blocks in double, in
// order: the same bits on any number of threads. bfloat16 is widened and narrowed element by
// element in these loops, half in passes of its own, since only the former's conversions become
// vector code inside of others.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "base/independent_loop.h"
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

// The mean and the variance of each channel. A block is read twice while it lies in the cache: for
// a mean of its own, then for sums of what is left and of its squares. The blocks' are joined in
// double (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979).
template <typename E>
class Statistics {
 public:
  Statistics(const Channels& l, const E* x) : l_(l), x_(x), channels_(l.channels) {}

  Status Run(KernelContext& c, float* mean, float* variance) {
    const int64_t blocks = rows() ? (l_.outer + kBlock - 1) / kBlock : l_.outer;
    MG_ASSIGN_OR_RETURN(Tensor parts, c.AllocateTemp(DT_FLOAT, Shape{blocks, 3, channels_}));
    parts_ = parts.data<float>();
    const auto body = [this](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) rows() ? OfRows(block) : OfPlanes(block);
    };
    c.ParallelFor(blocks, 1 + l_.elements() / blocks / 2, std::ref(body));
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_DOUBLE, Shape{2, channels_}));
    double *const means = sums.data<double>(), *const squares = means + channels_;
    std::fill_n(means, 2 * channels_, 0.0);
    const auto total = static_cast<double>(l_.per_channel());
    for (int64_t block = 0; block < blocks; ++block) {
      const double share = static_cast<double>(Size(block)) / total;
      for (int64_t k = 0; k < channels_; ++k) means[k] += Mean(block, k) * share;
    }
    for (int64_t block = 0; block < blocks; ++block) {
      const auto n = static_cast<double>(Size(block));
      for (int64_t k = 0; k < channels_; ++k) {
        const auto rest = static_cast<double>(Part(block)[channels_ + k]);
        const double away = Mean(block, k) - means[k];
        squares[k] +=
            static_cast<double>(Part(block)[2 * channels_ + k]) - rest * rest / n + n * away * away;
      }
    }
    for (int64_t k = 0; k < channels_; ++k) {
      mean[k] = static_cast<float>(means[k]);
      variance[k] = static_cast<float>(std::max(0.0, squares[k] / total));
    }
    return Status();
  }

 private:
  bool rows() const { return l_.inner == 1; }
  // Elements of a channel in the block.
  int64_t Size(int64_t block) const {
    return rows() ? std::min(kBlock, l_.outer - block * kBlock) : l_.inner;
  }
  // Of each channel a block's mean, then the sum of what is left, then of its squares.
  float* Part(int64_t block) const { return parts_ + block * 3 * channels_; }
  // With what rounding has left, which is a NaN where the mean is infinite.
  double Mean(int64_t block, int64_t k) const {
    const float own = Part(block)[k], rest = Part(block)[channels_ + k];
    return static_cast<double>(own) +
           (std::isfinite(rest) ? static_cast<double>(rest) / static_cast<double>(Size(block)) : 0);
  }

  void OfRows(int64_t block) const {
    const int64_t n = Size(block), channels = channels_;
    const E* const first = x_ + block * kBlock * channels;
    float* __restrict own = Part(block);
    float* __restrict rest = own + channels;
    float* __restrict squares = rest + channels;
    std::fill_n(own, 3 * channels, 0.f);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < channels; ++k) own[k] += Widen(first[i * channels + k]);
    }
    for (int64_t k = 0; k < channels; ++k) own[k] /= static_cast<float>(n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < channels; ++k) {
        const float d = Widen(first[i * channels + k]) - own[k];
        rest[k] += d, squares[k] += d * d;
      }
    }
  }

  void OfPlanes(int64_t image) const {
    for (int64_t k = 0; k < channels_; ++k) {
      const E* const plane = x_ + (image * channels_ + k) * l_.inner;
      float* const part = Part(image) + k;
      const auto own = static_cast<float>(SumOver([=](int64_t e) { return Widen(plane[e]); }) /
                                          static_cast<double>(l_.inner));
      const auto left = [=](int64_t e) { return Widen(plane[e]) - own; };
      part[0] = own;
      part[channels_] = static_cast<float>(SumOver(left));
      part[2 * channels_] =
          static_cast<float>(SumOver([=](int64_t e) { return left(e) * left(e); }));
    }
  }
  // fn's values over a plane: in float for kBlock elements, in double over these.
  template <typename Fn>
  double SumOver(const Fn& fn) const {
    double total = 0;
    for (int64_t j = 0; j < l_.inner; j += kBlock) {
      float sum = 0;
      for (int64_t e = j; e < std::min(l_.inner, j + kBlock); ++e) sum += fn(e);
      total += static_cast<double>(sum);
    }
    return total;
  }

  const Channels l_;
  const E* const x_;
  const int64_t channels_;
  float* parts_ = nullptr;
};

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

// What the loops read and write where tensors have elements of T.
template <typename T>
using Element = std::conditional_t<std::is_same_v<T, half>, float, T>;

// `tensor` as Element<T>: itself, or a converted copy.
template <typename T>
Result<Tensor> Source(KernelContext& c, const Tensor& tensor) {
  return ToFloat<std::conditional_t<std::is_same_v<T, half>, half, float>>(c, tensor);
}

// `tensor` itself if its elements are Element<T>, else a tensor for the floats that become it.
template <typename T>
Result<Tensor> Target(KernelContext& c, Tensor* tensor) {
  if constexpr (std::is_same_v<T, half>) {
    return c.AllocateTemp(DT_FLOAT, tensor->shape());
  } else {
    return *tensor;
  }
}

template <typename T>
class ForwardKernel : public Kernel {
  using E = Element<T>;

 public:
  explicit ForwardKernel(const KernelConstruction& k) : settings_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckForward(c.inputs(), settings_));
    const Tensor x = c.input(0), scale = c.input(1), offset = c.input(2), old_mean = c.input(3),
                 old_variance = c.input(4);
    MG_ASSIGN_OR_RETURN(const Tensor from, Source<T>(c, x));
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
    const E* in = from.data<E>();
    if (settings_.training) {
      MG_RETURN_IF_ERROR(Statistics<E>(l, in).Run(c, mean, variance));
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
    MG_ASSIGN_OR_RETURN(Tensor target, Target<T>(c, y));
    E* out = target.data<E>();
    const float* add = offset.data<float>();
    const auto normalised = [=](int64_t i, int64_t k) {
      return (Widen(in[i]) - mean[k]) * factor[k] + add[k];
    };
    if (settings_.side || settings_.relu) {
      Tensor beside;
      if (settings_.side) {
        MG_ASSIGN_OR_RETURN(beside, Source<T>(c, c.input(5)));
      }
      const E* side = settings_.side ? beside.data<E>() : nullptr;
      const bool relu = settings_.relu;
      ForElements(c, l, [=](int64_t i, int64_t k) {
        const float value = normalised(i, k) + (side == nullptr ? 0.f : Widen(side[i]));
        out[i] = Narrow<E>(relu && value < 0.f ? 0.f : value);
      });
    } else {
      ForElements(c, l, [=](int64_t i, int64_t k) { out[i] = Narrow<E>(normalised(i, k)); });
    }
    if constexpr (std::is_same_v<T, half>) FromFloat<T>(c, target, y);
    return Status();
  }

 private:
  const Settings settings_;
};

template <typename T>
class BackwardKernel : public Kernel {
  using E = Element<T>;

 public:
  explicit BackwardKernel(const KernelConstruction& k) : settings_(k.attrs()) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Channels l, CheckBackward(c.inputs(), settings_));
    const Tensor scale = c.input(2), means = c.input(3), variances = c.input(4);
    MG_ASSIGN_OR_RETURN(Tensor gradient, Source<T>(c, c.input(0)));
    MG_ASSIGN_OR_RETURN(const Tensor value, Source<T>(c, c.input(1)));
    Tensor* passing = nullptr;  // what the side input gets: all that passes the ReLU
    if (settings_.side) {
      MG_ASSIGN_OR_RETURN(passing, c.AllocateOutput(5, value.shape()));
    }
    if (settings_.relu) {
      MG_ASSIGN_OR_RETURN(gradient, ThroughRelu(c, gradient, passing));
    }
    MG_ASSIGN_OR_RETURN(Tensor * dx, c.AllocateOutput(0, value.shape()));
    MG_ASSIGN_OR_RETURN(Tensor * dscale, c.AllocateOutput(1, Shape{l.channels}));
    MG_ASSIGN_OR_RETURN(Tensor * doffset, c.AllocateOutput(2, Shape{l.channels}));
    for (int i : {3, 4}) MG_RETURN_IF_ERROR(c.AllocateOutput(i, Shape{0}).status());
    const E *dy = gradient.data<E>(), *x = value.data<E>();
    const float* mean = means.data<float>();
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_DOUBLE, Shape{2, l.channels}));
    double *first = sums.data<double>(), *second = first + l.channels;
    const auto products = [=](int64_t i, int64_t k, float* a, float* b) {
      *a = Widen(dy[i]), *b = Widen(dy[i]) * (Widen(x[i]) - mean[k]);
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
    MG_ASSIGN_OR_RETURN(Tensor target, Target<T>(c, dx));
    E* out = target.data<E>();
    ForElements(c, l, [=](int64_t i, int64_t k) {
      out[i] = Narrow<E>(by_gradient[k] *
                         (Widen(dy[i]) - shift[k] - by_value[k] * (Widen(x[i]) - mean[k])));
    });
    if constexpr (std::is_same_v<T, half>) FromFloat<T>(c, target, dx);
    return Status();
  }

 private:
  // The gradient, and what is added to it, where y > 0, else 0; in `passing`, too, if that is
  // there.
  Result<Tensor> ThroughRelu(KernelContext& c, const Tensor& gradient, Tensor* passing) const {
    MG_ASSIGN_OR_RETURN(const Tensor active, Source<T>(c, c.input(7)));
    Tensor more, masked;
    if (settings_.added > 0) {
      MG_ASSIGN_OR_RETURN(more, Source<T>(c, c.input(8)));
    }
    const bool in_passing = passing != nullptr && std::is_same_v<T, E>;
    if (in_passing) {
      masked = *passing;
    } else {
      MG_ASSIGN_OR_RETURN(masked, c.AllocateTemp(kDTypeOf<E>, gradient.shape()));
    }
    const E *from = gradient.data<E>(), *value = active.data<E>();
    E* const to = masked.data<E>();
    const auto mask = [&](const auto& gradient_of) {
      c.ParallelFor(gradient.elements(), 1, [=](int64_t begin, int64_t end) {
        MG_INDEPENDENT_LOOP
        for (int64_t i = begin; i < end; ++i) {
          const float passes = gradient_of(i);
          to[i] = Narrow<E>(Widen(value[i]) > 0.f ? passes : 0.f);
        }
      });
    };
    if (more.valid()) {
      mask([=, other = more.data<E>()](int64_t i) {
        return Widen(Narrow<T>(Widen(from[i]) + Widen(other[i])));
      });
    } else {
      mask([=](int64_t i) { return Widen(from[i]); });
    }
    if (passing != nullptr && !in_passing) FromFloat<T>(c, masked, passing);
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
