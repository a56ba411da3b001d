// cuBLASLt and cuDNN of a simulated GPU. By themselves they refuse everything, so that the plain
// kernels compute. A test may let them compute what the least of such libraries does
// (simulated_libraries in simulated_gpu.h), slowly, so that the ways around what they refuse are
// run, too.
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "ops/attention/cudnn_attention.h"
#include "ops/conv/cudnn_conv.h"
#include "ops/gpu/cudnn_layer.h"
#include "ops/gpu/device_code.h"
#include "ops/gpu/launch.h"
#include "ops/matmul/cublaslt.h"
#include "tests/gpu/simulated/simulated_gpu.h"

namespace monograph::ops {
namespace {

// fn(zero of the type).
template <typename Fn>
Status ForFloats(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DT_FLOAT:
      return fn(float{});
    case DT_DOUBLE:
      return fn(double{});
    case DT_HALF:
      return fn(half{});
    default:
      return fn(bfloat16{});
  }
}

template <typename T>
struct ProductBody {
  matmul::CublasCall call;
  void operator()(int64_t i) const {
    const matmul::Product& p = call.product;
    const int64_t which = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    const T *a = static_cast<const T*>(call.a) + which * call.a_stride,
            *b = static_cast<const T*>(call.b) + which * call.b_stride;
    Accumulator<T> sum = 0;
    for (int64_t k = 0; k < p.k; ++k)
      sum += Widen(a[p.ta ? k * p.m + row : row * p.k + k]) *
             Widen(b[p.tb ? column * p.k + k : k * p.n + column]);
    static_cast<T*>(call.out)[i] = Narrow<T>(sum);
  }
};

// Planes without padding; the filter lies as [oc, channels of a group, rows, columns].
template <typename T>
struct PlanesBody {
  conv::CudnnCall call;

  // fn(element of the input, of the filter, of the output) for each product that is added up.
  template <typename Fn>
  void ForTaps(const Fn& fn) const {
    const conv::Geometry& g = call.geometry;
    const T *x = static_cast<const T*>(call.input), *w = static_cast<const T*>(call.filter),
            *y = static_cast<const T*>(call.output);
    for (int64_t n = 0; n < g.n; ++n)
      for (int64_t b = 0; b < g.oc; ++b)
        for (int64_t oh = 0; oh < g.rows.out; ++oh)
          for (int64_t ow = 0; ow < g.columns.out; ++ow)
            for (int64_t a = 0; a < g.filter_channels(); ++a)
              for (int64_t r = 0; r < g.rows.size; ++r)
                for (int64_t s = 0; s < g.columns.size; ++s) {
                  const int64_t h = oh * g.rows.stride + r * g.rows.dilation,
                                v = ow * g.columns.stride + s * g.columns.dilation;
                  const int64_t channel = b / (g.oc / g.groups) * g.filter_channels() + a;
                  fn(x + ((n * g.ic + channel) * g.rows.in + h) * g.columns.in + v,
                     w + ((b * g.filter_channels() + a) * g.rows.size + r) * g.columns.size + s,
                     y + ((n * g.oc + b) * g.rows.out + oh) * g.columns.out + ow);
                }
  }
  // All of it at once: the result is small.
  void operator()(int64_t) const {
    using conv::Mode;
    const conv::Geometry& g = call.geometry;
    const Mode mode = call.mode;
    T* const out = static_cast<T*>(mode == Mode::kForward         ? call.output
                                   : mode == Mode::kBackpropInput ? call.input
                                                                  : call.filter);
    const int64_t size = mode == Mode::kForward         ? g.n * g.output_image()
                         : mode == Mode::kBackpropInput ? g.n * g.input_image()
                                                        : g.filter();
    std::vector<Accumulator<T>> sums(static_cast<size_t>(size));
    ForTaps([&](const T* x, const T* w, const T* y) {
      const T* const to = mode == Mode::kForward ? y : mode == Mode::kBackpropInput ? x : w;
      sums[static_cast<size_t>(to - out)] += mode == Mode::kForward         ? Widen(*x) * Widen(*w)
                                             : mode == Mode::kBackpropInput ? Widen(*y) * Widen(*w)
                                                                            : Widen(*x) * Widen(*y);
    });
    for (size_t i = 0; i < sums.size(); ++i) out[i] = Narrow<T>(sums[i]);
  }
};

// Batch normalisation, of one channel.
template <typename T>
struct NormBody {
  LayerCall call;

  void operator()(int64_t k) const {
    const int64_t n = call.image[0], channels = call.image[1];
    const int64_t pixels = call.image[2] * call.image[3];
    const auto at = [&](int64_t i) {
      return call.nchw ? (i / pixels * channels + k) * pixels + i % pixels : i * channels + k;
    };
    const auto vector = [&](size_t i) { return static_cast<const float*>(call.in[i]); };
    const auto result = [&](size_t i) { return static_cast<float*>(call.out[i]); };
    const auto* x = static_cast<const T*>(call.in[0]);
    auto* out = static_cast<T*>(call.out[0]);
    const int64_t count = n * pixels;
    const auto value = [&](int64_t i) { return static_cast<double>(Widen(x[at(i)])); };
    if (call.layer == Layer::kBatchNorm) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < count; ++i) mean += value(i) / static_cast<double>(count);
      for (int64_t i = 0; i < count; ++i)
        variance += (value(i) - mean) * (value(i) - mean) / static_cast<double>(count);
      const double inverse = 1 / std::sqrt(variance + static_cast<double>(call.epsilon));
      for (int64_t i = 0; i < count; ++i)
        out[at(i)] = Narrow<T>(static_cast<float>((value(i) - mean) * inverse) * vector(1)[k] +
                               vector(2)[k]);
      result(1)[k] = static_cast<float>(mean);
      result(2)[k] = static_cast<float>(inverse);
      return;
    }
    const auto* dy = static_cast<const T*>(call.in[1]);
    const auto gradient = [&](int64_t i) { return static_cast<double>(Widen(dy[at(i)])); };
    const double mean = static_cast<double>(vector(3)[k]),
                 inverse = static_cast<double>(vector(4)[k]);
    double dscale = 0, doffset = 0;
    for (int64_t i = 0; i < count; ++i) {
      doffset += gradient(i);
      dscale += gradient(i) * (value(i) - mean) * inverse;
    }
    const auto all = static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i) {
      const double rest = gradient(i) - doffset / all - (value(i) - mean) * inverse * dscale / all;
      out[at(i)] = Narrow<T>(static_cast<float>(rest * inverse) * vector(2)[k]);
    }
    result(1)[k] = static_cast<float>(dscale);
    result(2)[k] = static_cast<float>(doffset);
  }
};

// Attention with lengths, of one head. Nothing past them is written, and all before.
template <typename T>
struct AttentionBody {
  attention::CudnnCall call;

  // fn(row, its place, the column's place, whether it is seen) for each pair.
  template <typename Fn>
  void ForPairs(int64_t head, const Fn& fn) const {
    const attention::Sizes& s = call.sizes;
    const int64_t n = head / s.heads, first = head % s.heads * s.size;
    for (int64_t i = 0; i < call.row_counts[n]; ++i)
      for (int64_t j = 0; j < call.lengths[n]; ++j) {
        fn(i, (n * s.rows + i) * s.token() + first, (n * s.columns + j) * s.token() + first,
           !s.causal || j <= i);
      }
  }
  double Dot(const void* a, int64_t at_a, const void* b, int64_t at_b) const {
    double sum = 0;
    for (int64_t d = 0; d < call.sizes.size; ++d) {
      sum += static_cast<double>(Widen(static_cast<const T*>(a)[at_a + d])) *
             static_cast<double>(Widen(static_cast<const T*>(b)[at_b + d]));
    }
    return sum;
  }
  // Sums of one head, as they lie in the tensor `to`; stored where anything was added, if only 0.
  struct Sums {
    std::map<int64_t, double> values;
    void Add(int64_t to, double factor, const void* from, int64_t at, int64_t size) {
      for (int64_t d = 0; d < size; ++d) {
        values[to + d] += factor * static_cast<double>(Widen(static_cast<const T*>(from)[at + d]));
      }
    }
    void Store(void* to) const {
      for (const auto& [at, value] : values)
        static_cast<T*>(to)[at] = Narrow<T>(static_cast<float>(value));
    }
  };

  void operator()(int64_t head) const {
    const attention::Sizes& s = call.sizes;
    const auto scale = static_cast<double>(call.scale);
    float* const statistics = static_cast<float*>(call.statistics) + head * s.rows;
    const auto score = [&](int64_t q, int64_t k) {
      return scale * Dot(call.query, q, call.key, k);
    };
    const auto share = [&](int64_t i, int64_t q, int64_t k, bool seen) {
      return seen ? std::exp(score(q, k) - static_cast<double>(statistics[i])) : 0;
    };
    if (!call.backward) {
      std::vector<double> sums(static_cast<size_t>(s.rows));
      ForPairs(head, [&](int64_t i, int64_t q, int64_t k, bool seen) {
        if (seen) sums[static_cast<size_t>(i)] += std::exp(score(q, k));
      });
      for (size_t i = 0; i < sums.size(); ++i)
        statistics[i] = static_cast<float>(std::log(sums[i]));
      Sums output;
      ForPairs(head, [&](int64_t i, int64_t q, int64_t k, bool seen) {
        output.Add(q, share(i, q, k, seen), call.value, k, s.size);
      });
      return output.Store(call.output);
    }
    Sums dq, dk, dv;
    ForPairs(head, [&](int64_t i, int64_t q, int64_t k, bool seen) {
      const double p = share(i, q, k, seen);
      const double ds =
          scale * p *
          (Dot(call.gradient, q, call.value, k) - Dot(call.gradient, q, call.output, q));
      dq.Add(q, ds, call.key, k, s.size);
      dk.Add(k, ds, call.query, q, s.size);
      dv.Add(k, p, call.gradient, q, s.size);
    });
    dq.Store(call.dq);
    dk.Store(call.dk);
    dv.Store(call.dv);
  }
};

}  // namespace

struct CudnnLayer::Plan {};
bool CudnnLayer::Considered(KernelContext&, const LayerCall& call) {
  const bool norm = call.layer == Layer::kBatchNorm || call.layer == Layer::kBatchNormGrad;
  return norm && optest::simulated_libraries && !LibraryWays(call, true).empty();
}
Result<std::shared_ptr<CudnnLayer::Plan>> CudnnLayer::Make(
    KernelContext& c, const LayerCall& call, const std::function<Status()>&,
    const std::function<Status(const Plan&)>&) {
  return Considered(c, call) ? std::make_shared<Plan>() : nullptr;
}
Status CudnnLayer::Enqueue(KernelContext& c, const Plan&, const LayerCall& call) {
  return ForFloats(call.dtype, [&](auto zero) {
    return ForEach(c, call.image[1], NormBody<decltype(zero)>{call});
  });
}

struct matmul::Cublas::Impl {};
matmul::Cublas::Cublas() = default;
matmul::Cublas::~Cublas() = default;
Status matmul::Cublas::Run(KernelContext& c, const CublasCall& call) {
  const Product& p = call.product;
  if (!optest::simulated_libraries || p.fused.bias)
    return Unimplemented("a simulated GPU has no such product");
  return ForFloats(call.dtype, [&](auto zero) {
    return ForEach(c, p.m * p.n * call.count, ProductBody<decltype(zero)>{call});
  });
}

struct attention::CudnnAttention::Impl {};
attention::CudnnAttention::CudnnAttention() = default;
attention::CudnnAttention::~CudnnAttention() = default;
Status attention::CudnnAttention::Run(KernelContext& c, const CudnnCall& call) {
  if (!optest::simulated_libraries || !call.sizes.with_lengths)
    return Unimplemented("a simulated GPU has no such engine");
  return ForFloats(call.dtype, [&](auto zero) {
    return ForEach(c, call.sizes.n * call.sizes.heads, AttentionBody<decltype(zero)>{call});
  });
}

struct conv::CudnnConv::Impl {};
conv::CudnnConv::CudnnConv() = default;
conv::CudnnConv::~CudnnConv() = default;
Status conv::CudnnConv::Run(KernelContext& c, const CudnnCall& call) {
  const Geometry& g = call.geometry;
  const auto padded = [](const Window& w) { return w.pad_before != 0 || w.pad_after != 0; };
  if (!optest::simulated_libraries || call.fused.bias || !g.nchw || padded(g.rows) ||
      padded(g.columns))
    return Unimplemented("a simulated GPU has no such engine");
  return ForFloats(call.dtype,
                   [&](auto zero) { return ForEach(c, 1, PlanesBody<decltype(zero)>{call}); });
}

}  // namespace monograph::ops
