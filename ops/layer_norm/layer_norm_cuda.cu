// Layer normalisation and its gradient on GPUs. A row has `lanes` threads of a block, each of which
// adds up some of its packs; then every one of them adds up what all have, and writes its packs,
// which it reads once more: a block's rows are a few KiB, and still in the nearest cache. The
// variance is that of what lies above the row's first element, so that one pass gives both sums.
// Sums over rows are a launch of their own (ops/gpu/channel_sums.h).
#include <cmath>
#include <cstdint>

#include "executor/kernel.h"
#include "ops/gpu/channel_sums.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"
#include "ops/layer_norm/rows.h"

namespace monograph::ops::layer_norm {
namespace {

constexpr int kThreadsOfBlock = 256;

// What both ways have in common: two sums for each row, then N elements at a time. Body:
// begin(row, width) is what a thread knows of a row, add<N>(row, at, k, sums) adds what lies at
// [at, at + N), columns [k, k + N); finish(...) is what it knows with the sums, and
// write<N>(row, at, k) writes.
template <typename Body, int N>
struct RowBlocks {
  static constexpr int kThreads = kThreadsOfBlock, kPhases = 2, kResident = 4;
  struct Shared {
    float sums[2][kThreads];
  };
  int64_t rows, width;
  int lanes;
  Body body;

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int lane = thread % lanes, first = thread - lane;
    const int64_t row = block * (kThreads / lanes) + thread / lanes;
    if (row >= rows) return;
    const auto kept = body.begin(row, width);
    float sums[2] = {0, 0};
    if (phase == 0) {
      for (int64_t k = lane * N; k < width; k += lanes * N)
        body.template add<N>(kept, row * width + k, k, sums);
      shared.sums[0][thread] = sums[0];
      shared.sums[1][thread] = sums[1];
      return;
    }
    for (int i = 0; i < lanes; ++i) {
      sums[0] += shared.sums[0][first + i];
      sums[1] += shared.sums[1][first + i];
    }
    const auto of_row = body.finish(kept, row, width, sums, lane == 0);
    for (int64_t k = lane * N; k < width; k += lanes * N)
      body.template write<N>(of_row, row * width + k, k);
  }
};

template <typename T>
struct Normalize {
  struct Row {
    float mean, inverse;  // while adding, mean is the first element
  };
  float epsilon;
  const T* x;
  const float *scale, *offset;
  T* y;
  float *mean, *inverse;

  MG_HD Row begin(int64_t row, int64_t width) const { return {Widen(x[row * width]), 0}; }
  template <int N>
  MG_HD void add(const Row& row, int64_t at, int64_t, float* sums) const {
    const auto in = LoadPack<T, N>(x + at);
    MG_UNROLL
    for (int v = 0; v < N; ++v) {
      const float above = Widen(in.values[v]) - row.mean;
      sums[0] += above;
      sums[1] += above * above;
    }
  }
  MG_HD Row finish(const Row& row, int64_t at, int64_t width, const float* sums, bool store) const {
    const float above = sums[0] / static_cast<float>(width);
    const float variance = sums[1] / static_cast<float>(width) - above * above;
    const Row of{row.mean + above, 1 / std::sqrt((variance < 0 ? 0 : variance) + epsilon)};
    if (store) {
      mean[at] = of.mean;
      inverse[at] = of.inverse;
    }
    return of;
  }
  template <int N>
  MG_HD void write(const Row& row, int64_t at, int64_t k) const {
    const auto in = LoadPack<T, N>(x + at);
    const auto factor = LoadPack<float, N>(scale + k), plus = LoadPack<float, N>(offset + k);
    ElementPack<T, N> out;
    MG_UNROLL
    for (int v = 0; v < N; ++v) {
      out.values[v] = Narrow<T>((Widen(in.values[v]) - row.mean) * row.inverse * factor.values[v] +
                                plus.values[v]);
    }
    StorePack<T, N>(y + at, out);
  }
};

template <typename T>
struct Differentiate {
  struct Row {
    float mean, inverse, first, second;  // the last two: means of the row's two sums
  };
  const T *dy, *x;
  const float *scale, *mean, *inverse;
  T* dx;

  MG_HD Row begin(int64_t row, int64_t) const { return {mean[row], inverse[row], 0, 0}; }
  template <int N>
  MG_HD void add(const Row& row, int64_t at, int64_t k, float* sums) const {
    const auto in = LoadPack<T, N>(x + at), from = LoadPack<T, N>(dy + at);
    const auto factor = LoadPack<float, N>(scale + k);
    MG_UNROLL
    for (int v = 0; v < N; ++v) {
      const float g = Widen(from.values[v]) * factor.values[v];
      sums[0] += g;
      sums[1] += g * (Widen(in.values[v]) - row.mean) * row.inverse;
    }
  }
  MG_HD Row finish(const Row& row, int64_t, int64_t width, const float* sums, bool) const {
    const auto count = static_cast<float>(width);
    return {row.mean, row.inverse, sums[0] / count, sums[1] / count};
  }
  template <int N>
  MG_HD void write(const Row& row, int64_t at, int64_t k) const {
    const auto in = LoadPack<T, N>(x + at), from = LoadPack<T, N>(dy + at);
    const auto factor = LoadPack<float, N>(scale + k);
    ElementPack<T, N> out;
    MG_UNROLL
    for (int v = 0; v < N; ++v) {
      const float n = (Widen(in.values[v]) - row.mean) * row.inverse;
      out.values[v] = Narrow<T>(
          row.inverse * (Widen(from.values[v]) * factor.values[v] - row.first - n * row.second));
    }
    StorePack<T, N>(dx + at, out);
  }
};

// Sums over rows, of gradient times what is normalised and of the gradient.
template <typename T>
struct Terms {
  static constexpr int kSums = 2, kAhead = 2;
  struct Channel {};
  template <int N>
  struct Item {
    ElementPack<T, N> dy, x;
    float mean, inverse;
  };
  Divisor width;
  const T *dy, *x;
  const float *mean, *inverse;

  MG_HD Channel channel(int64_t) const { return {}; }
  template <int N>
  MG_HD Item<N> load(int64_t at) const {
    const int64_t row = width.Divide(at);
    return {LoadPack<T, N>(dy + at), LoadPack<T, N>(x + at), mean[row], inverse[row]};
  }
  template <int N>
  MG_HD void add(const Channel&, const Item<N>& item, int v, float* sums) const {
    const float gradient = Widen(item.dy.values[v]);
    sums[0] += gradient * (Widen(item.x.values[v]) - item.mean) * item.inverse;
    sums[1] += gradient;
  }
};
struct StoreSums {
  float *dscale, *doffset;
  MG_HD void operator()(int64_t k, const double* sums) const {
    dscale[k] = static_cast<float>(sums[0]);
    doffset[k] = static_cast<float>(sums[1]);
  }
};

template <typename Body, int N>
Status RunWith(KernelContext& c, const Rows& r, const Body& body) {
  // Up to four packs each, in at most 64 threads.
  int lanes = 8;
  while (lanes < 64 && lanes * 4 * N < r.width) lanes *= 2;
  const int64_t rows_of_block = kThreadsOfBlock / lanes;
  return ForBlocks(c, (r.rows + rows_of_block - 1) / rows_of_block,
                   RowBlocks<Body, N>{r.rows, r.width, lanes, body});
}
template <typename T, typename Body>
Status Run(KernelContext& c, const Rows& r, bool aligned, const Body& body) {
  if (aligned && r.width % kWidth<T> == 0) return RunWith<Body, kWidth<T>>(c, r, body);
  return RunWith<Body, 1>(c, r, body);
}

template <typename T>
class LayerNormKernel : public Kernel {
 public:
  explicit LayerNormKernel(const KernelConstruction& k) : epsilon_(k.attr<float>("epsilon")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Rows r, RowsOf(c, 0, false));
    const T* x = c.input(0).data<T>();
    const float *scale = c.input(1).data<float>(), *offset = c.input(2).data<float>();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * mean, c.AllocateOutput(1, r.of_rows));
    MG_ASSIGN_OR_RETURN(Tensor * inverse, c.AllocateOutput(2, r.of_rows));
    if (r.width == 0) {
      MG_RETURN_IF_ERROR(DeviceZero(c, mean->raw(), mean->bytes()));
      return DeviceZero(c, inverse->raw(), inverse->bytes());
    }
    T* y = out->data<T>();
    return Run<T>(
        c, r, Aligned({x, scale, offset, y}),
        Normalize<T>{epsilon_, x, scale, offset, y, mean->data<float>(), inverse->data<float>()});
  }

 private:
  const float epsilon_;
};

template <typename T>
class LayerNormGradKernel : public Kernel {
 public:
  explicit LayerNormGradKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Rows r, RowsOf(c, 1, true));
    const T *dy = c.input(0).data<T>(), *x = c.input(1).data<T>();
    const float *scale = c.input(2).data<float>(), *mean = c.input(3).data<float>(),
                *inverse = c.input(4).data<float>();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, c.input(1).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * dscale, c.AllocateOutput(1, Shape{r.width}));
    MG_ASSIGN_OR_RETURN(Tensor * doffset, c.AllocateOutput(2, Shape{r.width}));
    if (r.width == 0) return Status();
    T* dx = out->data<T>();
    MG_RETURN_IF_ERROR(
        SumPerColumn<kWidth<T>>(c, {.outer = r.rows, .channels = r.width}, Aligned({dy, x}),
                                Terms<T>{Divisor(r.width), dy, x, mean, inverse},
                                StoreSums{dscale->data<float>(), doffset->data<float>()}));
    return Run<T>(c, r, Aligned({dy, x, scale, dx}),
                  Differentiate<T>{dy, x, scale, mean, inverse, dx});
  }
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                   \
  registry->Add<LayerNormKernel<T>>(                                             \
      {.op = "_FusedLayerNorm", .device = kGpu, .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<LayerNormGradKernel<T>>(                                         \
      {.op = "_FusedLayerNormGrad", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  ADD(half)
  ADD(bfloat16)
  ADD(float)
#undef ADD
}

}  // namespace monograph::ops::layer_norm
