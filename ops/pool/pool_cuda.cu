// Pooling: one thread per element of the result, or per few neighbouring channels. The gradients
// gather, each element from the windows that it lies in, in their order: no atomics, and the same
// bits each time. cuDNN stands beside them (ops/gpu/cudnn_layer.h).
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "executor/kernel.h"
#include "ops/gpu/cudnn_layer.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"
#include "ops/pool/frames.h"

namespace monograph::ops::pool {
namespace {

struct Plane {
  explicit Plane(const Geometry& g)
      : rows(g.rows), columns(g.columns), image(g.image), pooled(g.pooled) {}
  Window rows, columns;
  Image image, pooled;
};

// Index to position, the dimension that lies closest in memory first; `width` channels at a time.
struct Positions {
  Positions(const Image& image, int width)
      : first(image.sc != 1), c(image.c / width), h(image.h), w(image.w), pack(width) {}
  MG_HD void At(int64_t i, int64_t* n, int64_t* y, int64_t* x, int64_t* k) const {
    if (!first) i = Split(c, i, k);
    i = Split(w, i, x);
    i = Split(h, i, y);
    if (first) i = Split(c, i, k);
    *k *= pack;
    *n = i;
  }
  MG_HD static int64_t Split(const Divisor& by, int64_t i, int64_t* rest) {
    const int64_t quotient = by.Divide(i);
    *rest = i - quotient * by.divisor();
    return quotient;
  }
  bool first;
  Divisor c, h, w;
  int pack;
};

MG_HD inline int64_t Offset(const Image& image, int64_t n, int64_t y, int64_t x, int64_t k) {
  return n * image.sn + y * image.sh + x * image.sw + k * image.sc;
}

// The windows [begin, end) that a coordinate lies in.
struct Windows {
  MG_HD Windows(const Window& w, int64_t at) {
    const int64_t from = at + w.pad_before;
    begin = from < w.size ? 0 : (from - w.size) / w.stride + 1;
    const int64_t last = from / w.stride + 1;
    end = last < w.out ? last : w.out;
  }
  int64_t begin, end;
};

template <typename T>
MG_HD inline Accumulator<T> LowestOf() {
  return -std::numeric_limits<Accumulator<T>>::infinity();
}

template <typename T, int N>
MG_HD inline void StoreNarrow(T* to, const Accumulator<T> (&values)[N]) {
  ElementPack<T, N> out;
  MG_UNROLL
  for (int v = 0; v < N; ++v) out.values[v] = Narrow<T>(values[v]);
  StorePack<T, N>(to, out);
}

template <typename T, int N, bool kMax>
struct Forward {
  Plane p;
  Positions positions;
  const T* x;
  T* y;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    int64_t n, oh, ow, k;
    positions.At(i, &n, &oh, &ow, &k);
    const Inside rows(p.rows, oh), columns(p.columns, ow);
    A value[N];
    MG_UNROLL
    for (int v = 0; v < N; ++v) value[v] = kMax ? LowestOf<T>() : A(0);
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const auto in = LoadPack<T, N>(x + Offset(p.image, n, h, w, k));
        MG_UNROLL
        for (int v = 0; v < N; ++v) {
          const A next = Widen(in.values[v]);
          if constexpr (kMax) {
            value[v] = value[v] > next ? value[v] : next;
          } else {
            value[v] += next;
          }
        }
      }
    }
    if constexpr (!kMax) {
      const A count = static_cast<A>(rows.size() * columns.size());
      MG_UNROLL
      for (int v = 0; v < N; ++v) value[v] /= count;
    }
    StoreNarrow(y + Offset(p.pooled, n, oh, ow, k), value);
  }
};

template <typename T, int N>
struct AverageBackward {
  Plane p;
  Positions positions;
  const T* dy;
  T* dx;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    int64_t n, h, w, k;
    positions.At(i, &n, &h, &w, &k);
    const Windows rows(p.rows, h), columns(p.columns, w);
    A sum[N];
    MG_UNROLL
    for (int v = 0; v < N; ++v) sum[v] = A(0);
    for (int64_t oh = rows.begin; oh < rows.end; ++oh) {
      for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
        const A count = static_cast<A>(Inside(p.rows, oh).size() * Inside(p.columns, ow).size());
        const auto in = LoadPack<T, N>(dy + Offset(p.pooled, n, oh, ow, k));
        MG_UNROLL
        for (int v = 0; v < N; ++v) sum[v] += Widen(in.values[v]) / count;
      }
    }
    StoreNarrow(dx + Offset(p.image, n, h, w, k), sum);
  }
};

// A window's gradient goes to the first element, row by row, that equals its maximum: each element
// looks for one before it, in all its channels at once.
template <typename T, int N>
struct MaxBackward {
  static constexpr int kResident = 3;
  Plane p;
  Positions positions;
  const T *x, *y, *dy;
  T* dx;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    int64_t n, h, w, k;
    positions.At(i, &n, &h, &w, &k);
    const Windows rows(p.rows, h), columns(p.columns, w);
    const int64_t at = Offset(p.image, n, h, w, k);
    const auto own = LoadPack<T, N>(x + at);
    A sum[N];
    MG_UNROLL
    for (int v = 0; v < N; ++v) sum[v] = A(0);
    for (int64_t oh = rows.begin; oh < rows.end; ++oh) {
      for (int64_t ow = columns.begin; ow < columns.end; ++ow) {
        const int64_t from = Offset(p.pooled, n, oh, ow, k);
        const auto top = LoadPack<T, N>(y + from);
        const uint32_t first = WithoutEarlier(n, oh, ow, h, w, k, top, Equal(own, top));
        if (first == 0) continue;
        const auto gradient = LoadPack<T, N>(dy + from);
        MG_UNROLL
        for (int v = 0; v < N; ++v) {
          if ((first >> v & 1) != 0) sum[v] += Widen(gradient.values[v]);
        }
      }
    }
    StoreNarrow(dx + at, sum);
  }

  // Bit v: a and b are equal in channel v.
  MG_HD static uint32_t Equal(const ElementPack<T, N>& a, const ElementPack<T, N>& b) {
    uint32_t equal = 0;
    MG_UNROLL
    for (int v = 0; v < N; ++v)
      equal |= static_cast<uint32_t>(Widen(a.values[v]) == Widen(b.values[v])) << v;
    return equal;
  }
  // Those channels of `open` in which no element of the window before (h, w) equals `top`.
  MG_HD uint32_t WithoutEarlier(int64_t n, int64_t oh, int64_t ow, int64_t h, int64_t w, int64_t k,
                                const ElementPack<T, N>& top, uint32_t open) const {
    const Inside rows(p.rows, oh), columns(p.columns, ow);
    for (int64_t a = rows.begin; a <= h && open != 0; ++a) {
      const int64_t end = a == h ? w : columns.end;
      const T* from = x + Offset(p.image, n, a, columns.begin, k);
      for (int64_t b = columns.begin; b < end && open != 0; ++b, from += p.image.sw)
        open &= ~Equal(LoadPack<T, N>(from), top);
    }
    return open;
  }
};

// From each window the value at the first element, row by row, that equals its maximum.
template <typename T>
struct MaxSecond {
  Plane p;
  Positions positions;
  const T *x, *y, *ddx;
  T* ddy;

  MG_HD void operator()(int64_t i) const {
    int64_t n, oh, ow, k;
    positions.At(i, &n, &oh, &ow, &k);
    const int64_t to = Offset(p.pooled, n, oh, ow, k);
    const Accumulator<T> maximum = Widen(y[to]);
    const Inside rows(p.rows, oh), columns(p.columns, ow);
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const int64_t at = Offset(p.image, n, h, w, k);
        if (Widen(x[at]) == maximum) {
          ddy[to] = ddx[at];
          return;
        }
      }
    }
    ddy[to] = Narrow<T>(Accumulator<T>(0));
  }
};

// fn(width) with how many channels a thread takes at a time: 16 bytes where they lie together.
template <typename T, typename Fn>
Status WithWidth(const Geometry& g, std::initializer_list<const void*> pointers, const Fn& fn) {
  constexpr int kWide = kWidth<T>;
  if (g.image.sc == 1 && g.image.c % kWide == 0 && Aligned(pointers))
    return fn(std::integral_constant<int, kWide>());
  return fn(std::integral_constant<int, 1>());
}

template <typename T>
LayerCall CallOf(Layer layer, const Geometry& g) {
  return {.layer = layer,
          .dtype = kDTypeOf<T>,
          .nchw = g.image.sc != 1,
          .image = {g.image.n, g.image.c, g.image.h, g.image.w},
          .rows = g.rows,
          .columns = g.columns};
}

template <typename T, bool kMax>
class ForwardPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, T* y) {
    LayerCall call = CallOf<T>(kMax ? Layer::kMaxPool : Layer::kAvgPool, g);
    call.in[0] = x, call.out[0] = y;
    return layer_.Run(c, call, [&] {
      return WithWidth<T>(g, {x, y}, [&](auto width) {
        return ForEach(c, g.pooled_shape.elements() / width,
                       Forward<T, width(), kMax>{Plane(g), Positions(g.pooled, width), x, y});
      });
    });
  }

 private:
  CudnnLayer layer_;
};

template <typename T>
class MaxGradPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, const T* y, const T* dy, T* dx) {
    LayerCall call = CallOf<T>(Layer::kMaxPoolGrad, g);
    call.in = {y, dy, x}, call.out[0] = dx;
    return layer_.Run(c, call, [&] {
      return WithWidth<T>(g, {x, y, dy, dx}, [&](auto width) {
        return ForEach(c, g.image.elements() / width,
                       MaxBackward<T, width()>{Plane(g), Positions(g.image, width), x, y, dy, dx});
      });
    });
  }

 private:
  CudnnLayer layer_;
};

template <typename T>
struct MaxGradGradPass {
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* x, const T* y, const T* ddx,
             T* ddy) const {
    return ForEach(c, g.pooled_shape.elements(),
                   MaxSecond<T>{Plane(g), Positions(g.pooled, 1), x, y, ddx, ddy});
  }
};

template <typename T>
class AverageGradPass {
 public:
  using Type = T;
  Status Run(KernelContext& c, const Geometry& g, const T* dy, Tensor* out) {
    T* dx = out->data<T>();
    LayerCall call = CallOf<T>(Layer::kAvgPoolGrad, g);
    call.in[0] = dy, call.out[0] = dx;
    return layer_.Run(c, call, [&] {
      return WithWidth<T>(g, {dy, dx}, [&](auto width) {
        return ForEach(c, g.image.elements() / width,
                       AverageBackward<T, width()>{Plane(g), Positions(g.image, width), dy, dx});
      });
    });
  }

 private:
  CudnnLayer layer_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                         \
  registry->Add<ForwardKernel<ForwardPass<T, true>>>(                                  \
      {.op = "MaxPool", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});               \
  registry->Add<ForwardKernel<ForwardPass<T, false>>>(                                 \
      {.op = "AvgPool", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});               \
  registry->Add<MaxGradKernel<MaxGradPass<T>>>(                                        \
      {.op = "MaxPoolGrad", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});           \
  registry->Add<MaxGradGradKernel<MaxGradGradPass<T>>>(                                \
      {.op = "MaxPoolGradGrad", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});       \
  registry->Add<AverageGradKernel<AverageGradPass<T>>>({.op = "AvgPoolGrad",           \
                                                        .device = kGpu,                \
                                                        .types = {{"T", kDTypeOf<T>}}, \
                                                        .host_args = {"orig_input_shape"}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::pool
