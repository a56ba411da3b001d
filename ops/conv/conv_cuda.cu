// Convolution and its two gradients: cuDNN, and plain kernels for doubles and for what it refuses.
// cuDNN is fast where the filter lies as the images do, so the filter is transposed on its way in,
// and its gradient on its way out, unless GroupCasts turns it with all others. Where a window
// is one pixel, value and input's gradient are products of matrices by cuBLASLt. Where cuDNN has no
// engine for images as they lie, they are moved to planes with their padding around them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "executor/kernel.h"
#include "ops/conv/cudnn_conv.h"
#include "ops/conv/geometry.h"
#include "ops/fused_ops.h"
#include "ops/gpu/add_bias.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/moves.h"
#include "ops/matmul/cublaslt.h"

namespace monograph::ops::conv {
namespace {

// ---- the filter's layout ----

// to [columns, rows] = from [rows, columns] transposed, for each of many such matrices.
template <typename T>
Status Transpose(KernelContext& c, int64_t matrices, int64_t rows, int64_t columns, const T* from,
                 T* to) {
  StridedSpace space;
  space.Add(matrices, rows * columns, rows * columns);
  space.Add(columns, 1, rows);
  space.Add(rows, columns, 1);
  return DeviceMoves::Strided(c, sizeof(T), from, to, space);
}

// TensorFlow's [window, ic, oc] to cuDNN's [oc, window, ic], or [oc, ic, window] for channels
// first.
template <typename T>
Status ToCudnn(KernelContext& c, const Geometry& g, const T* from, T* to) {
  const int64_t window = g.rows.size * g.columns.size;
  if (!g.nchw || window == 1) return Transpose(c, 1, window * g.filter_channels(), g.oc, from, to);
  MG_ASSIGN_OR_RETURN(Tensor between, c.AllocateTemp(kDTypeOf<T>, Shape{g.filter()}));
  T* middle = between.data<T>();
  MG_RETURN_IF_ERROR(Transpose(c, 1, window * g.filter_channels(), g.oc, from, middle));
  return Transpose<T>(c, g.oc, window, g.filter_channels(), middle, to);
}

// The same from [oc, window, ic], and back. REQUIRES: channels first; for others the filter lies
// so.
template <typename T>
Status TurnedToPlanes(KernelContext& c, const Geometry& g, const T* from, T* to) {
  return Transpose<T>(c, g.oc, g.rows.size * g.columns.size, g.filter_channels(), from, to);
}
template <typename T>
Status PlanesToTurned(KernelContext& c, const Geometry& g, const T* from, T* to) {
  return Transpose<T>(c, g.oc, g.filter_channels(), g.rows.size * g.columns.size, from, to);
}

// cuDNN's to TensorFlow's.
template <typename T>
Status FromCudnn(KernelContext& c, const Geometry& g, const T* from, T* to) {
  const int64_t window = g.rows.size * g.columns.size;
  if (!g.nchw || window == 1) return Transpose(c, 1, g.oc, window * g.filter_channels(), from, to);
  MG_ASSIGN_OR_RETURN(Tensor between, c.AllocateTemp(kDTypeOf<T>, Shape{g.filter()}));
  T* middle = between.data<T>();
  MG_RETURN_IF_ERROR(PlanesToTurned<T>(c, g, from, middle));
  return Transpose<T>(c, 1, g.oc, window * g.filter_channels(), middle, to);
}

// ---- images ----

// Where things lie: strides in elements of batch, rows, columns and channels.
struct Images {
  int64_t rows, columns, channels;
  int64_t sn, sh, sw, sc;
  Images(int64_t h, int64_t w, int64_t c, bool nchw)
      : rows(h),
        columns(w),
        channels(c),
        sn(h * w * c),
        sh(nchw ? w : w * c),
        sw(nchw ? 1 : c),
        sc(nchw ? h * w : 1) {}
  MG_HD int64_t at(int64_t n, int64_t h, int64_t w, int64_t c) const {
    return n * sn + h * sh + w * sw + c * sc;
  }
};
Images InputOf(const Geometry& g) { return {g.rows.in, g.columns.in, g.ic, g.nchw}; }
Images OutputOf(const Geometry& g) { return {g.rows.out, g.columns.out, g.oc, g.nchw}; }

// The same convolution over planes that have their padding around them.
Geometry PaddedPlanes(Geometry g) {
  g.nchw = true;
  for (Window* w : {&g.rows, &g.columns}) {
    w->in += w->pad_before + w->pad_after;
    w->pad_before = w->pad_after = 0;
  }
  return g;
}

// `n` images of the smaller of two sizes; `from` and `to` are the addresses of their corners.
template <typename T>
Status MoveImages(KernelContext& c, int64_t n, const Images& a, const T* from, const Images& b,
                  T* to) {
  const int64_t rows = std::min(a.rows, b.rows), columns = std::min(a.columns, b.columns);
  StridedSpace space;
  space.Add(n, a.sn, b.sn);
  if (b.sc != 1) space.Add(b.channels, a.sc, b.sc);
  space.Add(rows, a.sh, b.sh);
  space.Add(columns, a.sw, b.sw);
  if (b.sc == 1) space.Add(b.channels, a.sc, b.sc);
  return DeviceMoves::Strided(c, sizeof(T), from, to, space);
}

// ---- plain kernels, one thread per element of the result ----

struct Plain {
  explicit Plain(const Geometry& g)
      : n(g.n),
        filter_channels(g.filter_channels()),
        group_outputs(g.oc / g.groups),
        rows(g.rows),
        columns(g.columns),
        in(InputOf(g)),
        out(OutputOf(g)) {}
  int64_t n, filter_channels, group_outputs;
  Window rows, columns;
  Images in, out;
  MG_HD int64_t filter(int64_t r, int64_t s, int64_t a, int64_t b) const {
    return ((r * columns.size + s) * filter_channels + a) * out.channels + b;
  }
  // The first input channel that output channel b sees, and the first output channel that sees
  // input channel a.
  MG_HD int64_t first_in(int64_t b) const { return b / group_outputs * filter_channels; }
  MG_HD int64_t first_out(int64_t a) const { return a / filter_channels * group_outputs; }
  // The row (or column) of the input under element k of window o; -1 outside.
  MG_HD static int64_t Under(const Window& w, int64_t o, int64_t k) {
    const int64_t at = o * w.stride - w.pad_before + k * w.dilation;
    return at >= 0 && at < w.in ? at : -1;
  }
  // The window whose element k lies over `at`; -1 if there is none.
  MG_HD static int64_t Over(const Window& w, int64_t at, int64_t k) {
    const int64_t from = at + w.pad_before - k * w.dilation;
    if (from < 0 || from % w.stride != 0) return -1;
    return from / w.stride < w.out ? from / w.stride : -1;
  }
};

template <typename T>
struct PlainForward {
  Plain p;
  bool relu;
  const T *x, *w, *bias;  // bias: nullptr if there is none
  T* y;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    const int64_t b = i % p.out.channels, pixel = i / p.out.channels;
    const int64_t ow = pixel % p.out.columns, oh = pixel / p.out.columns % p.out.rows,
                  n = pixel / (p.out.columns * p.out.rows);
    const int64_t first = p.first_in(b);
    A sum = 0;
    for (int64_t r = 0; r < p.rows.size; ++r) {
      const int64_t h = Plain::Under(p.rows, oh, r);
      if (h < 0) continue;
      for (int64_t s = 0; s < p.columns.size; ++s) {
        const int64_t c = Plain::Under(p.columns, ow, s);
        if (c < 0) continue;
        for (int64_t a = 0; a < p.filter_channels; ++a)
          sum += Widen(x[p.in.at(n, h, c, first + a)]) * Widen(w[p.filter(r, s, a, b)]);
      }
    }
    if (bias != nullptr) sum += Widen(bias[b]);
    y[p.out.at(n, oh, ow, b)] = Narrow<T>(relu && sum < A(0) ? A(0) : sum);
  }
};

template <typename T>
struct PlainBackpropInput {
  Plain p;
  const T *w, *dy;
  T* dx;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    const int64_t a = i % p.in.channels, pixel = i / p.in.channels;
    const int64_t c = pixel % p.in.columns, h = pixel / p.in.columns % p.in.rows,
                  n = pixel / (p.in.columns * p.in.rows);
    const int64_t first = p.first_out(a), own = a % p.filter_channels;
    A sum = 0;
    for (int64_t r = 0; r < p.rows.size; ++r) {
      const int64_t oh = Plain::Over(p.rows, h, r);
      if (oh < 0) continue;
      for (int64_t s = 0; s < p.columns.size; ++s) {
        const int64_t ow = Plain::Over(p.columns, c, s);
        if (ow < 0) continue;
        for (int64_t b = first; b < first + p.group_outputs; ++b)
          sum += Widen(dy[p.out.at(n, oh, ow, b)]) * Widen(w[p.filter(r, s, own, b)]);
      }
    }
    dx[p.in.at(n, h, c, a)] = Narrow<T>(sum);
  }
};

template <typename T>
struct PlainBackpropFilter {
  Plain p;
  const T *x, *dy;
  T* dw;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    const int64_t b = i % p.out.channels, a = i / p.out.channels % p.filter_channels;
    const int64_t tap = i / (p.out.channels * p.filter_channels), channel = p.first_in(b) + a;
    const int64_t s = tap % p.columns.size, r = tap / p.columns.size;
    A sum = 0;
    for (int64_t n = 0; n < p.n; ++n) {
      for (int64_t oh = 0; oh < p.out.rows; ++oh) {
        const int64_t h = Plain::Under(p.rows, oh, r);
        if (h < 0) continue;
        for (int64_t ow = 0; ow < p.out.columns; ++ow) {
          const int64_t c = Plain::Under(p.columns, ow, s);
          if (c < 0) continue;
          sum += Widen(x[p.in.at(n, h, c, channel)]) * Widen(dy[p.out.at(n, oh, ow, b)]);
        }
      }
    }
    dw[i] = Narrow<T>(sum);
  }
};

// Conv2D and DepthwiseConv2dNative, and their gradients; _FusedConv2D. The gradients of a depthwise
// one do not go to cuDNN.
template <typename T, Mode kMode>
class ConvKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<ConvKernel>();
    kernel->attrs_ = k.attrs();
    kernel->turned_ = FilterIsTurned(k.attrs());
    kernel->kind_ = KindOf(k.op());
    if (kMode == Mode::kForward) {
      MG_ASSIGN_OR_RETURN(kernel->fused_, FusedOps::Parse(k.attrs()));
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Call call, CallOf(kMode, attrs_, fused_, c.inputs(), kind_));
    const Geometry& g = call.geometry;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, call.result(kMode)));
    if (out->elements() == 0) return Status();
    if (call.empty()) return DeviceZero(c, out->raw(), out->bytes());  // a sum of nothing
    if constexpr (!std::is_same_v<T, double>) {
      if (kMode == Mode::kForward || kind_ == Kind::kImage) {
        const Status status = ByCudnn(c, g, out);
        if (status.code() != Code::kUnimplemented) return status;
      }
    }
    return ByPlain(c, g, out);
  }

 private:
  // Every pixel by itself, none left out.
  static bool IsProduct(const Geometry& g) {
    const auto one = [](const Window& w) {
      return w.size == 1 && w.stride == 1 && w.pad_before == 0 && w.pad_after == 0;
    };
    return !g.nchw && g.groups == 1 && one(g.rows) && one(g.columns);
  }

  Status ByProduct(KernelContext& c, const Geometry& g, Tensor* out) {
    matmul::CublasCall call;
    call.dtype = kDTypeOf<T>;
    call.product.m = g.n * g.rows.in * g.columns.in;
    call.b = c.input(1).raw();
    call.out = out->raw();
    if constexpr (kMode == Mode::kForward) {
      call.product.k = g.ic;
      call.product.n = g.oc;
      call.product.fused = fused_;
      call.a = c.input(0).raw();
      if (fused_.bias) call.bias = c.input(2).raw();
    } else {
      call.product.k = g.oc;
      call.product.n = g.ic;
      call.product.tb = true;
      call.a = c.input(2).raw();
    }
    return product_.Run(c, call);
  }

  Status ByCudnn(KernelContext& c, const Geometry& g, Tensor* out) {
    if (kMode != Mode::kBackpropFilter && !turned_ && IsProduct(g)) {
      const Status status = ByProduct(c, g, out);
      if (status.code() != Code::kUnimplemented) return status;
    }
    const auto reads = [&](int i) { return const_cast<T*>(c.input(i).data<T>()); };
    T *x = nullptr, *filter = nullptr, *y = nullptr;
    if constexpr (kMode == Mode::kForward) {
      x = reads(0), filter = reads(1), y = out->data<T>();
    } else if constexpr (kMode == Mode::kBackpropInput) {
      x = out->data<T>(), filter = reads(1), y = reads(2);
    } else {
      x = reads(0), filter = out->data<T>(), y = reads(2);
    }
    bool biased = false;
    const Status direct = ByEngine(c, g, x, filter, y, &biased);
    if (direct.code() == Code::kUnimplemented) {
      MG_RETURN_IF_ERROR(ByPlanes(c, g, x, filter, y));
    } else {
      MG_RETURN_IF_ERROR(direct);
    }
    return fused_.bias && !biased ? AddOwnBias(c, g, out) : Status();
  }

  // The filter's gradient where a window is one pixel: exchanged images give it transposed, which
  // is as TensorFlow's filter lies.
  Status ByExchange(KernelContext& c, const Geometry& g, T* x, T* filter, T* y) {
    Geometry exchanged = g;
    std::swap(exchanged.ic, exchanged.oc);
    return conv_.Run(c, {.mode = kMode,
                         .dtype = kDTypeOf<T>,
                         .geometry = exchanged,
                         .input = y,
                         .filter = filter,
                         .output = x});
  }

  // By one of cuDNN's engines; with bias and activation if `biased` is given and set. `filter` lies
  // as TensorFlow's, or turned.
  Status ByEngine(KernelContext& c, const Geometry& g, T* x, T* filter, T* y,
                  bool* biased = nullptr) {
    if (kMode == Mode::kBackpropFilter && !turned_ && IsProduct(g))
      return ByExchange(c, g, x, filter, y);
    Tensor moved;
    T* as_cudnn = filter;
    if (!turned_ || g.nchw) {
      MG_ASSIGN_OR_RETURN(moved, c.AllocateTemp(kDTypeOf<T>, Shape{g.filter()}));
      as_cudnn = moved.data<T>();
      if constexpr (kMode != Mode::kBackpropFilter)
        MG_RETURN_IF_ERROR(turned_ ? TurnedToPlanes(c, g, filter, as_cudnn)
                                   : ToCudnn<T>(c, g, filter, as_cudnn));
    }
    CudnnCall call{.mode = kMode,
                   .dtype = kDTypeOf<T>,
                   .geometry = g,
                   .input = x,
                   .filter = as_cudnn,
                   .output = y};
    if (biased != nullptr && fused_.bias) {
      call.fused = fused_;
      call.bias = c.input(2).raw();
      const Status status = fused_conv_.Run(c, call);
      *biased = status.ok();
      if (status.code() != Code::kUnimplemented) return status;
      call.fused = {};
    }
    MG_RETURN_IF_ERROR(conv_.Run(c, call));
    if constexpr (kMode == Mode::kBackpropFilter) {
      if (as_cudnn != filter)
        return turned_ ? PlanesToTurned<T>(c, g, as_cudnn, filter)
                       : FromCudnn<T>(c, g, as_cudnn, filter);
    }
    return Status();
  }

  // The same over padded planes.
  Status ByPlanes(KernelContext& c, const Geometry& g, T* x, T* filter, T* y) {
    const Geometry planes = PaddedPlanes(g);
    if (planes.key() == g.key()) return Unimplemented("the images lie so");
    const Images in = InputOf(g), out = OutputOf(g), padded = InputOf(planes),
                 plane = OutputOf(planes);
    MG_ASSIGN_OR_RETURN(Tensor x_tensor,
                        c.AllocateTemp(kDTypeOf<T>, Shape{g.n * planes.input_image()}));
    MG_ASSIGN_OR_RETURN(Tensor y_tensor,
                        c.AllocateTemp(kDTypeOf<T>, Shape{g.n * planes.output_image()}));
    T *px = x_tensor.data<T>(), *py = y_tensor.data<T>();
    T* const corner = px + padded.at(0, g.rows.pad_before, g.columns.pad_before, 0);
    if constexpr (kMode != Mode::kBackpropInput) {
      if (planes.input_image() != g.input_image())
        MG_RETURN_IF_ERROR(DeviceZero(c, px, x_tensor.bytes()));
      MG_RETURN_IF_ERROR(MoveImages<T>(c, g.n, in, x, padded, corner));
    }
    if constexpr (kMode != Mode::kForward)
      MG_RETURN_IF_ERROR(MoveImages<T>(c, g.n, out, y, plane, py));
    MG_RETURN_IF_ERROR(ByEngine(c, planes, px, filter, py));
    if constexpr (kMode == Mode::kForward) return MoveImages<T>(c, g.n, plane, py, out, y);
    if constexpr (kMode == Mode::kBackpropInput)
      return MoveImages<T>(c, g.n, padded, corner, in, x);
    return Status();
  }

  Status AddOwnBias(KernelContext& c, const Geometry& g, Tensor* out) const {
    const int64_t inner = g.nchw ? g.rows.out * g.columns.out : 1;
    T* const y = out->data<T>();
    return AddBias<T>(c, out->elements(), inner, g.oc, fused_.relu, y, c.input(2).data<T>(), y);
  }

  Status ByPlain(KernelContext& c, const Geometry& g, Tensor* out) const {
    const Plain p(g);
    T* to = out->data<T>();
    const int64_t n = out->elements();
    if constexpr (kMode == Mode::kBackpropFilter) {
      Tensor straight;
      if (turned_) {
        MG_ASSIGN_OR_RETURN(straight, c.AllocateTemp(kDTypeOf<T>, Shape{n}));
      }
      T* const made = turned_ ? straight.data<T>() : to;
      MG_RETURN_IF_ERROR(ForEach(
          c, n, PlainBackpropFilter<T>{p, c.input(0).data<T>(), c.input(2).data<T>(), made}));
      return turned_ ? Transpose<T>(c, 1, n / g.oc, g.oc, made, to) : Status();
    } else {
      Tensor back;
      const T* filter = c.input(1).data<T>();
      if (turned_) {
        MG_ASSIGN_OR_RETURN(back, c.AllocateTemp(kDTypeOf<T>, Shape{g.filter()}));
        MG_RETURN_IF_ERROR(
            Transpose(c, 1, g.oc, g.filter() / g.oc, filter, back.template data<T>()));
        filter = back.template data<T>();
      }
      if constexpr (kMode == Mode::kBackpropInput) {
        return ForEach(c, n, PlainBackpropInput<T>{p, filter, c.input(2).data<T>(), to});
      } else {
        const T* bias = fused_.bias ? c.input(2).data<T>() : nullptr;
        return ForEach(c, n,
                       PlainForward<T>{p, fused_.relu, c.input(0).data<T>(), filter, bias, to});
      }
    }
  }

  Attrs attrs_;
  bool turned_ = false;  // FilterIsTurned
  Kind kind_ = Kind::kImage;
  FusedOps fused_;
  CudnnConv conv_, fused_conv_;
  matmul::Cublas product_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                                     \
  for (const char* op : {"Conv2D", "_FusedConv2D", "DepthwiseConv2dNative"}) {                     \
    registry->Add<ConvKernel<T, Mode::kForward>>(                                                  \
        {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}});                                \
  }                                                                                                \
  for (const char* op :                                                                            \
       {"Conv2DBackpropInput", "_Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput"}) {    \
    registry->Add<ConvKernel<T, Mode::kBackpropInput>>(                                            \
        {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}, .host_args = {"input_sizes"}});  \
  }                                                                                                \
  for (const char* op :                                                                            \
       {"Conv2DBackpropFilter", "_Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter"}) { \
    registry->Add<ConvKernel<T, Mode::kBackpropFilter>>(                                           \
        {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}, .host_args = {"filter_sizes"}}); \
  }
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::conv
