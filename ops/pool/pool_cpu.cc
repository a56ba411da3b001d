// Pooling by plain loops over channels, which the compiler turns into vector code; windows of 2 x 2
// have a loop of their own. Floats go to oneDNN first, but for the maximum and its gradient over
// windows of 2 x 2 that tile the image. Each pass is a class, of which ForwardKernel, MaxGradKernel
// and their like make the kernels.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/pool/frames.h"
#include "ops/pool/max_gradient.h"
#include "ops/pool/onednn_pool_cpu.h"

namespace monograph::ops::pool {

void RegisterArgmax(KernelRegistry* registry);      // argmax_pool_cpu.cc
void RegisterFractional(KernelRegistry* registry);  // fractional_pool_cpu.cc
void RegisterVolumes(KernelRegistry* registry);     // volume_pool_cpu.cc

namespace {

PoolPass PassOf(PoolPass::Kind kind, const Geometry& g) {
  return {kind, g.image.sc != 1, g.image.n, g.image.c, g.rows, g.columns};
}

// Of one window, for Looks.
int64_t WorkOf(const Geometry& g, const Inside& rows, const Inside& columns) {
  return 1 + rows.size() * columns.size() * g.image.c;
}

template <typename T>
T Lowest() {
  if constexpr (kIs16Bit<T>) {
    return T(-std::numeric_limits<float>::infinity());
  } else {
    return -std::numeric_limits<T>::infinity();
  }
}

template <typename T>
class MaxPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, T* y) {
    if constexpr (std::is_same_v<T, float>) {
      if (!(g.tiles() && g.rows.size == 2 && g.columns.size == 2)) {
        const Status status = onednn_.Run(c, PassOf(PoolPass::kMax, g), x, y);
        if (status.code() != Code::kUnimplemented) return status;
      }
    }
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      WithChannelStride(g.image.sc, [&](auto sc) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t n = unit / g.rows.out, oh = unit % g.rows.out;
          const Inside rows(g.rows, oh);
          for (int64_t ow = 0; ow < g.columns.out; ++ow) {
            const Inside columns(g.columns, ow);
            if (!looks.GoOn(WorkOf(g, rows, columns))) return;
            T* to = y + n * g.pooled.sn + oh * g.pooled.sh + ow * g.pooled.sw;
            One(g, x + n * g.image.sn, rows, columns, to, sc);
          }
        }
      });
    };
    c.ParallelFor(g.image.n * g.rows.out, 1 + g.reads_of_row() / 8, std::ref(body));
    return Status();
  }

 private:
  template <typename Stride>
  static void One(const Geometry& g, const T* image, const Inside& rows, const Inside& columns,
                  T* __restrict to, Stride sc) {
    const int64_t out_sc = sc == 1 ? 1 : g.pooled.sc, channels = g.image.c;
    if (rows.size() == 2 && columns.size() == 2) {
      const T *a = image + rows.begin * g.image.sh + columns.begin * g.image.sw,
              *b = a + g.image.sw, *d = a + g.image.sh, *e = d + g.image.sw;
      for (int64_t k = 0; k < channels; ++k) {
        const T ab = Max(a[k * sc], b[k * sc]), de = Max(d[k * sc], e[k * sc]);
        to[sc == 1 ? k : k * out_sc] = Max(ab, de);
      }
      return;
    }
    for (int64_t k = 0; k < channels; ++k) to[k * out_sc] = Lowest<T>();
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const T* from = image + h * g.image.sh + w * g.image.sw;
        for (int64_t k = 0; k < channels; ++k)
          to[sc == 1 ? k : k * out_sc] = Max(to[sc == 1 ? k : k * out_sc], from[k * sc]);
      }
    }
  }
  static T Max(T a, T b) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      // As whole floats, whose lower halves are zeros: so loops over this are vector ones.
      const float fa = a, fb = b, larger = fa > fb ? fa : fb;
      bfloat16 upper;
      upper.bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(larger) >> 16);
      return upper;
    } else {
      return a > b ? a : b;
    }
  }

  OnednnPool onednn_;
};

template <typename T>
class MaxGradPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, const T* y, const T* dy, T* dx) {
    if constexpr (std::is_same_v<T, float>) {
      if (!(g.tiles() && g.rows.size == 2 && g.columns.size == 2)) {
        const Status status = onednn_.Run(c, PassOf(PoolPass::kMaxGradient, g), x, dy, dx);
        if (status.code() != Code::kUnimplemented) return status;
      }
    }
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      MaxGradient<T>::Run(g, end - begin, x + begin * g.image.sn, y + begin * g.pooled.sn,
                          dy + begin * g.pooled.sn, dx + begin * g.image.sn, &looks);
    };
    c.ParallelFor(g.image.n, 1 + g.image.sn / 2, std::ref(body));
    return Status();
  }

 private:
  OnednnPool onednn_;
};

// From each window the value at its first largest element, row by row.
template <typename T>
class MaxGradGradPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, const T* y, const T* ddx, T* ddy) {
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t n = unit / g.rows.out, oh = unit % g.rows.out;
        for (int64_t ow = 0; ow < g.columns.out; ++ow) {
          if (!looks.GoOn(WorkOf(g, Inside(g.rows, oh), Inside(g.columns, ow)))) return;
          const int64_t to = n * g.pooled.sn + oh * g.pooled.sh + ow * g.pooled.sw;
          for (int64_t k = 0; k < g.image.c; ++k) {
            const int64_t at = to + k * g.pooled.sc;
            const int64_t first = First(g, oh, ow, x + n * g.image.sn + k * g.image.sc, y[at]);
            ddy[at] = first < 0 ? T(0) : ddx[n * g.image.sn + k * g.image.sc + first];
          }
        }
      }
    };
    c.ParallelFor(g.image.n * g.rows.out, 1 + g.reads_of_row(), std::ref(body));
    return Status();
  }

 private:
  // Where in the channel; -1: nowhere.
  static int64_t First(const Geometry& g, int64_t oh, int64_t ow, const T* channel, T maximum) {
    const Inside rows(g.rows, oh), columns(g.columns, ow);
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const int64_t at = h * g.image.sh + w * g.image.sw;
        if (channel[at] == maximum) return at;
      }
    }
    return -1;
  }
};

template <typename T>
class AveragePass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, T* y) {
    if constexpr (std::is_same_v<T, float>) {
      const Status status = onednn_.Run(c, PassOf(PoolPass::kAverage, g), x, y);
      if (status.code() != Code::kUnimplemented) return status;
    }
    using A = Accumulator<T>;
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      WithChannelStride(g.image.sc, [&](auto sc) {
        constexpr int64_t kLanes = 64;
        A sum[kLanes];
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t n = unit / g.rows.out, oh = unit % g.rows.out;
          const Inside rows(g.rows, oh);
          for (int64_t ow = 0; ow < g.columns.out; ++ow) {
            const Inside columns(g.columns, ow);
            if (!looks.GoOn(WorkOf(g, rows, columns))) return;
            T* to = y + n * g.pooled.sn + oh * g.pooled.sh + ow * g.pooled.sw;
            const A count = static_cast<A>(static_cast<float>(rows.size() * columns.size()));
            for (int64_t first = 0; first < g.image.c; first += kLanes) {
              const int64_t lanes = std::min(kLanes, g.image.c - first);
              std::fill_n(sum, lanes, A(0));
              for (int64_t h = rows.begin; h < rows.end; ++h) {
                for (int64_t w = columns.begin; w < columns.end; ++w) {
                  const T* from = x + n * g.image.sn + h * g.image.sh + w * g.image.sw + first * sc;
                  for (int64_t k = 0; k < lanes; ++k) sum[k] += static_cast<A>(from[k * sc]);
                }
              }
              for (int64_t k = 0; k < lanes; ++k) to[(first + k) * g.pooled.sc] = T(sum[k] / count);
            }
          }
        }
      });
    };
    c.ParallelFor(g.image.n * g.rows.out, 1 + g.reads_of_row() / 8, std::ref(body));
    return Status();
  }

 private:
  OnednnPool onednn_;
};

template <typename T>
class AverageGradPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* dy, Tensor* out) {
    using A = Accumulator<T>;
    Tensor sums = *out;  // 16-bit gradients of overlapping windows add up in float
    if constexpr (kIs16Bit<T>) {
      MG_ASSIGN_OR_RETURN(sums, c.AllocateTemp(DT_FLOAT, out->shape()));
    }
    A* dx = sums.template data<A>();
    if constexpr (std::is_same_v<T, float>) {
      const Status status = onednn_.Run(c, PassOf(PoolPass::kAverageGradient, g), dx, dy);
      if (status.code() != Code::kUnimplemented) return status;
    }
    const auto body = [&](int64_t begin, int64_t end) {
      Looks looks(c);
      WithChannelStride(g.image.sc, [&](auto sc) {
        for (int64_t n = begin; n < end; ++n) {
          std::fill_n(dx + n * g.image.sn, g.image.sn, A(0));
          for (int64_t oh = 0; oh < g.rows.out; ++oh) {
            const Inside rows(g.rows, oh);
            for (int64_t ow = 0; ow < g.columns.out; ++ow) {
              const Inside columns(g.columns, ow);
              if (!looks.GoOn(WorkOf(g, rows, columns))) return;
              const T* from = dy + n * g.pooled.sn + oh * g.pooled.sh + ow * g.pooled.sw;
              const A count = static_cast<A>(static_cast<float>(rows.size() * columns.size()));
              for (int64_t h = rows.begin; h < rows.end; ++h) {
                for (int64_t w = columns.begin; w < columns.end; ++w) {
                  A* __restrict to = dx + n * g.image.sn + h * g.image.sh + w * g.image.sw;
                  for (int64_t k = 0; k < g.image.c; ++k)
                    to[k * sc] += static_cast<A>(from[k * (sc == 1 ? 1 : g.pooled.sc)]) / count;
                }
              }
            }
          }
        }
      });
    };
    c.ParallelFor(g.image.n, 1 + g.image.sn, std::ref(body));
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, sums, out);
    return Status();
  }

 private:
  OnednnPool onednn_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                                    \
  registry->Add<ForwardKernel<MaxPass<T>>>({.op = "MaxPool", .types = {{"T", kDTypeOf<T>}}});     \
  registry->Add<ForwardKernel<AveragePass<T>>>({.op = "AvgPool", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<MaxGradKernel<MaxGradPass<T>>>(                                                   \
      {.op = "MaxPoolGrad", .types = {{"T", kDTypeOf<T>}}});                                      \
  registry->Add<MaxGradGradKernel<MaxGradGradPass<T>>>(                                           \
      {.op = "MaxPoolGradGrad", .types = {{"T", kDTypeOf<T>}}});                                  \
  registry->Add<AverageGradKernel<AverageGradPass<T>>>(                                           \
      {.op = "AvgPoolGrad", .types = {{"T", kDTypeOf<T>}}, .host_args = {"orig_input_shape"}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
#define ADD(T)                                                                                    \
  registry->Add<ForwardKernel<MaxPass<T>, 1>>(                                                    \
      {.op = "MaxPoolV2", .types = {{"T", kDTypeOf<T>}}, .host_args = {"ksize", "strides"}});     \
  registry->Add<MaxGradKernel<MaxGradPass<T>, 3>>(                                                \
      {.op = "MaxPoolGradV2", .types = {{"T", kDTypeOf<T>}}, .host_args = {"ksize", "strides"}}); \
  registry->Add<MaxGradGradKernel<MaxGradGradPass<T>, 3>>({.op = "MaxPoolGradGradV2",             \
                                                           .types = {{"T", kDTypeOf<T>}},         \
                                                           .host_args = {"ksize", "strides"}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
  RegisterArgmax(registry);
  RegisterFractional(registry);
  RegisterVolumes(registry);
}

}  // namespace monograph::ops::pool
