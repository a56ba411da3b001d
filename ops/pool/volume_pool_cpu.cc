// Pooling over volumes by plain loops. For each window they go through the elements inside, and for
// each element through the channels, which lie side by side in NDHWC.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/pool/geometry.h"

namespace monograph::ops::pool {

void RegisterVolumes(KernelRegistry* registry);

namespace {

// A tensor of volumes, wherever its dimensions lie; strides in elements.
struct Volume {
  int64_t n = 0, c = 0;
  int64_t sn = 0, sd = 0, sh = 0, sw = 0, sc = 0;

  static Volume Of(const Shape& s, const VolumeFormat& f) {
    int64_t strides[5];
    strides[4] = 1;
    for (int i = 3; i >= 0; --i) strides[i] = strides[i + 1] * s[i + 1];
    return {s[f.n], s[f.c], strides[f.n], strides[f.d], strides[f.h], strides[f.w], strides[f.c]};
  }
};

struct Windows3 {
  Window depth, rows, columns;
  Volume image, pooled;
  Shape pooled_shape;
};

Result<Windows3> PlaceVolume(const Attrs& attrs, const Shape& in) {
  if (in.rank() != 5)
    return InvalidArgument("pooling of volumes needs 5 dimensions, got " + in.ToString());
  MG_ASSIGN_OR_RETURN(const VolumeFormat format,
                      ParseVolumeFormat(attrs.Get<std::string>("data_format")));
  Windows3 g;
  MG_RETURN_IF_ERROR(PlaceVolumePools(attrs, format, in[format.d], in[format.h], in[format.w],
                                      &g.depth, &g.rows, &g.columns));
  g.image = Volume::Of(in, format);
  g.pooled_shape = in;
  g.pooled_shape.set_dim(format.d, g.depth.out);
  g.pooled_shape.set_dim(format.h, g.rows.out);
  g.pooled_shape.set_dim(format.w, g.columns.out);
  g.pooled = Volume::Of(g.pooled_shape, format);
  return g;
}

// Calls window(offset of the result, elements inside, each) for each window of volume n, where
// each(fn) calls fn(offset in the volume) for each element of the window.
template <typename Fn>
void ForWindows(const KernelContext& c, const Windows3& g, int64_t n, const Fn& window) {
  Looks looks(c);
  for (int64_t od = 0; od < g.depth.out; ++od) {
    const Inside depth(g.depth, od);
    for (int64_t oh = 0; oh < g.rows.out; ++oh) {
      const Inside rows(g.rows, oh);
      for (int64_t ow = 0; ow < g.columns.out; ++ow) {
        const Inside columns(g.columns, ow);
        const int64_t count = depth.size() * rows.size() * columns.size();
        if (!looks.GoOn(1 + count * g.image.c)) return;
        const auto each = [&](const auto& fn) {
          for (int64_t d = depth.begin; d < depth.end; ++d) {
            for (int64_t h = rows.begin; h < rows.end; ++h) {
              for (int64_t w = columns.begin; w < columns.end; ++w)
                fn(n * g.image.sn + d * g.image.sd + h * g.image.sh + w * g.image.sw);
            }
          }
        };
        window(n * g.pooled.sn + od * g.pooled.sd + oh * g.pooled.sh + ow * g.pooled.sw, count,
               each);
      }
    }
  }
}

// fn(volume) for all volumes.
template <typename Fn>
void ForVolumes(KernelContext& c, const Windows3& g, const Fn& fn) {
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) fn(n);
  };
  c.ParallelFor(g.image.n, 1 + g.image.sn * 2, std::ref(body));
}

// Output buffer in the type that is computed in: float for 16-bit types.
template <typename T>
Result<Tensor> Target(KernelContext& c, Tensor* out) {
  if constexpr (kIs16Bit<T>) {
    return c.AllocateTemp(DT_FLOAT, out->shape());
  } else {
    return *out;
  }
}

template <typename T, bool kMax>
class VolumePoolKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit VolumePoolKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Windows3 g, PlaceVolume(attrs_, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, g.pooled_shape));
    if (out->elements() == 0) return Status();
    MG_ASSIGN_OR_RETURN(const Tensor wide, ToFloat<T>(c, c.input(0)));
    MG_ASSIGN_OR_RETURN(Tensor target, Target<T>(c, out));
    const A* x = wide.data<A>();
    A* y = target.data<A>();
    ForVolumes(c, g, [&](int64_t n) {
      ForWindows(c, g, n, [&](int64_t to, int64_t count, const auto& each) {
        A* __restrict const result = y + to;
        const int64_t step = g.pooled.sc;
        for (int64_t k = 0; k < g.image.c; ++k)
          result[k * step] = kMax ? -std::numeric_limits<A>::infinity() : A(0);
        each([&](int64_t at) {
          const A* from = x + at;
          for (int64_t k = 0; k < g.image.c; ++k) {
            const A value = from[k * g.image.sc];
            A& slot = result[k * step];
            slot = kMax ? (value > slot ? value : slot) : slot + value;
          }
        });
        if constexpr (!kMax) {
          for (int64_t k = 0; k < g.image.c; ++k)
            result[k * step] /= static_cast<A>(static_cast<double>(count));
        }
      });
    });
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  const Attrs attrs_;
};

template <typename T>
class AveragePool3DGradKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit AveragePool3DGradKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Shape shape, ImageShape(c.input(0)));
    MG_ASSIGN_OR_RETURN(const Windows3 g, PlaceVolume(attrs_, shape));
    MG_RETURN_IF_ERROR(RequireShape(c.input(1), g.pooled_shape, "the gradient"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->elements() == 0) return Status();
    MG_ASSIGN_OR_RETURN(const Tensor wide, ToFloat<T>(c, c.input(1)));
    MG_ASSIGN_OR_RETURN(Tensor target, Target<T>(c, out));
    const A* dy = wide.data<A>();
    A* dx = target.data<A>();
    ForVolumes(c, g, [&](int64_t n) {
      std::fill_n(dx + n * g.image.sn, g.image.sn, A(0));
      ForWindows(c, g, n, [&](int64_t from, int64_t count, const auto& each) {
        const A share = A(1) / static_cast<A>(static_cast<double>(count));
        each([&](int64_t at) {
          for (int64_t k = 0; k < g.image.c; ++k)
            dx[at + k * g.image.sc] += dy[from + k * g.pooled.sc] * share;
        });
      });
    });
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  const Attrs attrs_;
};

// MaxPool3DGrad adds each window's gradient to all elements that equal its maximum, as TensorFlow
// does for volumes; kGather, which is MaxPool3DGradGrad, reads the value at the first of them.
template <typename T, bool kGather>
class MaxPool3DGradKernel : public Kernel {
  using A = Accumulator<T>;

 public:
  explicit MaxPool3DGradKernel(const KernelConstruction& k) : attrs_(k.attrs()) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const Windows3 g, PlaceVolume(attrs_, shape));
    MG_RETURN_IF_ERROR(RequireShape(c.input(1), g.pooled_shape, "the pooled output"));
    MG_RETURN_IF_ERROR(RequireShape(c.input(2), kGather ? shape : g.pooled_shape, "the gradient"));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, kGather ? g.pooled_shape : shape));
    if (out->elements() == 0) return Status();
    MG_ASSIGN_OR_RETURN(const Tensor wide, ToFloat<T>(c, c.input(2)));
    MG_ASSIGN_OR_RETURN(Tensor target, Target<T>(c, out));
    const T* x = c.input(0).data<T>();
    const T* y = c.input(1).data<T>();
    const A* from = wide.data<A>();
    A* to = target.data<A>();
    ForVolumes(c, g, [&](int64_t n) {
      if constexpr (!kGather) std::fill_n(to + n * g.image.sn, g.image.sn, A(0));
      ForWindows(c, g, n, [&](int64_t pooled, int64_t, const auto& each) {
        for (int64_t k = 0; k < g.image.c; ++k) {
          const int64_t there = pooled + k * g.pooled.sc;
          const A largest = static_cast<A>(y[there]);
          int64_t first = -1;
          each([&](int64_t at) {
            const int64_t here = at + k * g.image.sc;
            if (static_cast<A>(x[here]) != largest) return;
            if (first < 0) first = here;
            if constexpr (!kGather) to[here] += from[there];
          });
          if constexpr (kGather) to[there] = first < 0 ? A(0) : from[first];
        }
      });
    });
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  const Attrs attrs_;
};

}  // namespace

void RegisterVolumes(KernelRegistry* registry) {
#define MG_ADD(T)                                                                                \
  registry->Add<VolumePoolKernel<T, true>>({.op = "MaxPool3D", .types = {{"T", kDTypeOf<T>}}});  \
  registry->Add<VolumePoolKernel<T, false>>({.op = "AvgPool3D", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<MaxPool3DGradKernel<T, false>>(                                                  \
      {.op = "MaxPool3DGrad", .types = {{"T", kDTypeOf<T>}, {"TInput", kDTypeOf<T>}}});          \
  registry->Add<MaxPool3DGradKernel<T, true>>(                                                   \
      {.op = "MaxPool3DGradGrad", .types = {{"T", kDTypeOf<T>}}});                               \
  registry->Add<AveragePool3DGradKernel<T>>(                                                     \
      {.op = "AvgPool3DGrad", .types = {{"T", kDTypeOf<T>}}, .host_args = {"orig_input_shape"}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::pool
