// Convolution and its two gradients. Float goes to oneDNN, or is computed by Fourier transforms
// where windows are large and channels many; and so does bfloat16 where the processor has
// instructions for it. Other 16-bit floats become floats before. Other types, and what oneDNN
// refuses, take the plain loops below.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "executor/kernel.h"
#include "ops/conv/fourier_conv_cpu.h"
#include "ops/conv/geometry.h"
#include "ops/conv/onednn_conv_cpu.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"
#include "ops/fused_ops.h"
#include "ops/pool/max_gradient.h"

namespace monograph::ops::conv {
namespace {

// Calls fn(place in the input, place in the filter) for each element of a window that lies inside.
template <typename Fn>
void ForInside(const Window& window, int64_t out, const Fn& fn) {
  for (int64_t i = 0; i < window.size; ++i) {
    const int64_t at = out * window.stride - window.pad_before + i * window.dilation;
    if (at >= 0 && at < window.in) fn(at, i);
  }
}

// Calls fn(input offset, output offset, filter offset) for each pair of pixels that a filter
// element joins. Offsets are of channel 0.
template <typename Fn>
void ForPixels(const KernelContext& c, const Geometry& g, int64_t n, const Fn& fn) {
  const int64_t iw = g.nchw ? 1 : g.ic, ow = g.nchw ? 1 : g.oc;
  const auto outputs = [&](int64_t z, int64_t y, int64_t x) {
    const int64_t to = n * g.output_image() + ((z * g.rows.out + y) * g.columns.out + x) * ow;
    ForInside(g.depth, z, [&](int64_t d, int64_t q) {
      ForInside(g.rows, y, [&](int64_t h, int64_t r) {
        ForInside(g.columns, x, [&](int64_t w, int64_t s) {
          fn(n * g.input_image() + ((d * g.rows.in + h) * g.columns.in + w) * iw, to,
             ((q * g.rows.size + r) * g.columns.size + s) * g.filter_channels() * g.oc);
        });
      });
    });
  };
  for (int64_t z = 0; z < g.depth.out; ++z) {
    for (int64_t y = 0; y < g.rows.out; ++y) {
      for (int64_t x = 0; x < g.columns.out; ++x) {
        if (c.cancelled()) return;
        outputs(z, y, x);
      }
    }
  }
}

// Calls fn(input channel, output channel, filter offset from the first channels') for each pair of
// channels that a filter element joins.
template <typename Fn>
void ForChannels(const Geometry& g, const Fn& fn) {
  const int64_t in = g.filter_channels(), out = g.oc / g.groups;
  for (int64_t group = 0; group < g.groups; ++group) {
    for (int64_t a = 0; a < in; ++a) {
      for (int64_t b = group * out; b < (group + 1) * out; ++b) fn(group * in + a, b, a * g.oc + b);
    }
  }
}

template <typename T>
void Plain(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused, const T* input,
           const T* filter, const T* bias, const T* dy, T* out) {
  const int64_t ic_step = g.nchw ? g.input_image() / g.ic : 1,
                oc_step = g.nchw ? g.output_image() / g.oc : 1;
  if (mode == Mode::kBackpropFilter) {
    std::fill_n(out, g.filter(), T(0));
    for (int64_t n = 0; n < g.n; ++n) {
      ForPixels(c, g, n, [&](int64_t i, int64_t o, int64_t f) {
        ForChannels(g, [&](int64_t a, int64_t b, int64_t w) {
          out[f + w] += input[i + a * ic_step] * dy[o + b * oc_step];
        });
      });
    }
    return;
  }
  const auto images = [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (mode == Mode::kForward) {
        std::fill_n(out + n * g.output_image(), g.output_image(), T(0));
        ForPixels(c, g, n, [&](int64_t i, int64_t o, int64_t f) {
          ForChannels(g, [&](int64_t a, int64_t b, int64_t w) {
            out[o + b * oc_step] += input[i + a * ic_step] * filter[f + w];
          });
        });
        if (!fused.bias) continue;
        T* image = out + n * g.output_image();
        for (int64_t e = 0; e < g.output_image(); ++e) {
          const T value = image[e] + bias[g.nchw ? e / oc_step : e % g.oc];
          image[e] = fused.relu && value < T(0) ? T(0) : value;
        }
      } else {
        std::fill_n(out + n * g.input_image(), g.input_image(), T(0));
        ForPixels(c, g, n, [&](int64_t i, int64_t o, int64_t f) {
          ForChannels(g, [&](int64_t a, int64_t b, int64_t w) {
            out[i + a * ic_step] += dy[o + b * oc_step] * filter[f + w];
          });
        });
      }
    }
  };
  c.ParallelFor(g.n, std::max<int64_t>(1, g.flops_per_image()), std::ref(images));
}

// Whether Fourier transforms are the faster way: not where tiles multiply bfloat16 (5.7 ms instead
// of 1.5 for the second convolution of the MNIST CNN, batch 100, forward). Both gradients go the
// same way, as one node has them.
template <typename T>
bool TransformsPay(Mode mode, const Geometry& g) {
  const bool by_tiles = mode == Mode::kForward || onednn::kQuickGradientsByTiles;
  return FourierConv::Fits(g) &&
         !(std::is_same_v<T, bfloat16> && by_tiles && onednn::HasBfloat16Tiles());
}

// A convolution or one of its gradients by Fourier transforms or by oneDNN. T: float, or bfloat16
// if onednn::HasBfloat16().
template <typename T>
class LibraryConv {
 public:
  // Unimplemented: what both refuse.
  Status Run(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused, const T* x,
             const T* w, const T* bias, const T* dy, T* out) {
    if (TransformsPay<T>(mode, g)) {
      MG_ASSIGN_OR_RETURN(const bool finite, Transformed(c, mode, g, fused, x, w, bias, dy, out));
      if (finite) return Status();
    }
    return onednn_.Run(c, mode, g, fused, x, w, bias, dy, out);
  }

 private:
  Result<bool> Transformed(KernelContext& c, Mode mode, const Geometry& g, const FusedOps& fused,
                           const T* x, const T* w, const T* bias, const T* dy, T* out) {
    if (mode == Mode::kForward) return fourier_.Forward(c, g, fused, x, w, bias, out);
    BackpropData<T> data{.x = x, .filter = w, .dy = dy};
    (mode == Mode::kBackpropFilter ? data.filter_gradient : data.dx) = out;
    return fourier_.Backprop(c, g, {}, data);
  }

  FourierConv fourier_;
  OnednnConv<T> onednn_;
};

// What the kernel of T has for bfloat16 as it is.
template <typename T, template <typename> typename Library>
using OfBfloat16 =
    std::conditional_t<std::is_same_v<T, bfloat16>, Library<bfloat16>, std::monostate>;

// Conv2D, DepthwiseConv2dNative and Conv3D, and their gradients; _FusedConv2D.
template <typename T, Mode kMode>
class ConvKernel : public Kernel {
  using C = Accumulator<T>;

 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<ConvKernel>();
    kernel->attrs_ = k.attrs();
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
    if (call.empty()) {  // a sum of nothing
      std::memset(out->raw(), 0, out->bytes());
      return Status();
    }
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (onednn::HasBfloat16() && !FilterIsTurned(attrs_)) {
        const auto input = [&](bool there, int i) {
          return there ? c.input(i).data<T>() : nullptr;
        };
        const Status status =
            bfloat16_.Run(c, kMode, g, fused_, input(kMode != Mode::kBackpropInput, 0),
                          input(kMode != Mode::kBackpropFilter, 1), input(fused_.bias, 2),
                          input(kMode != Mode::kForward, 2), out->data<T>());
        if (status.code() != Code::kUnimplemented) return status;
      }
    }
    Tensor x, w, last, target = *out;
    if (kMode != Mode::kBackpropInput) {
      MG_ASSIGN_OR_RETURN(x, ToFloat<T>(c, c.input(0)));
    }
    if (kMode != Mode::kBackpropFilter) {
      MG_ASSIGN_OR_RETURN(w, ToFloat<T>(c, c.input(1)));
      if (FilterIsTurned(attrs_)) {
        const Tensor turned = w;
        MG_ASSIGN_OR_RETURN(w, c.AllocateTemp(kDTypeOf<C>, Shape{g.filter()}));
        Turn(c, g.oc, g.filter() / g.oc, turned, &w);
      }
    }
    if (kMode != Mode::kForward || fused_.bias) {
      MG_ASSIGN_OR_RETURN(last, ToFloat<T>(c, c.input(2)));
    }
    const bool turns = kMode == Mode::kBackpropFilter && FilterIsTurned(attrs_);
    if (kIs16Bit<T> || turns) {
      MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(kDTypeOf<C>, out->shape()));
    }
    const C* bias = fused_.bias ? last.data<C>() : nullptr;
    const C* dy = kMode == Mode::kForward ? nullptr : last.data<C>();
    MG_RETURN_IF_ERROR(
        Convolve(c, g, x.data<C>(), w.data<C>(), bias, dy, target.template data<C>()));
    if (turns) {
      const Tensor straight = target;
      target = *out;
      if (kIs16Bit<T>) {
        MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(kDTypeOf<C>, out->shape()));
      }
      Turn(c, g.filter() / g.oc, g.oc, straight, &target);
    }
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  // A matrix of so many rows and columns, transposed.
  static void Turn(KernelContext& c, int64_t rows, int64_t columns, const Tensor& from,
                   Tensor* to) {
    StridedSpace space;
    space.Add(columns, 1, rows);
    space.Add(rows, columns, 1);
    StridedCopy(c, sizeof(C), from.raw(), to->raw(), space);
  }

  Status Convolve(KernelContext& c, const Geometry& g, const C* x, const C* w, const C* bias,
                  const C* dy, C* out) {
    if constexpr (std::is_same_v<C, float>) {
      const Status status = float_.Run(c, kMode, g, fused_, x, w, bias, dy, out);
      if (status.code() != Code::kUnimplemented) return status;
    }
    Plain(c, kMode, g, fused_, x, w, bias, dy, out);
    return Status();
  }

  Attrs attrs_;
  Kind kind_ = Kind::kImage;
  FusedOps fused_;
  LibraryConv<float> float_;
  OfBfloat16<T, LibraryConv> bfloat16_;
};

// Both gradients of a convolution, as LibraryConv.
template <typename T>
class LibraryBackprop {
 public:
  Status Run(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
             const BackpropData<T>& data) {
    if (TransformsPay<T>(Mode::kBackpropFilter, g)) {
      MG_ASSIGN_OR_RETURN(const bool finite, fourier_.Backprop(c, g, pool, data));
      if (finite) return Status();
    }
    return onednn_.Run(c, g, pool, data);
  }

 private:
  FourierConv fourier_;
  OnednnBackprop<T> onednn_;
};

// _Conv2DBackprop: inputs x, filter_sizes, dy, the filter if dx is wanted, and x and y of a pooling
// if dy is behind one. T: float or bfloat16.
template <typename T>
class BackpropKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const int64_t filters = k.attr<int64_t>("num_filters"), args = k.attr<int64_t>("num_args");
    if (filters > 1 || (args != 0 && args != 2)) {
      return InvalidArgument("num_filters must be 0 or 1, and num_args 0 or 2, not " +
                             std::to_string(filters) + " and " + std::to_string(args));
    }
    auto kernel = std::make_unique<BackpropKernel>();
    kernel->attrs_ = k.attrs();
    kernel->wants_dx_ = filters == 1;
    kernel->pooled_ = args == 2;
    const std::vector<int64_t> window{1, 2, 2, 1};
    kernel->pool_attrs_.Set("ksize", window);
    kernel->pool_attrs_.Set("strides", window);
    kernel->pool_attrs_.Set("padding", k.attrs().Get<std::string>("pool_padding"));
    kernel->pool_attrs_.Set("data_format", std::string("NHWC"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &dy = c.input(2);
    MG_ASSIGN_OR_RETURN(const Shape filter_shape, ShapeFrom(c.input(1), "filter_sizes"));
    MG_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(attrs_, x.shape(), filter_shape));
    pool::Geometry pool;
    if (pooled_) {
      const Tensor& pool_x = c.input(c.num_inputs() - 2);
      MG_ASSIGN_OR_RETURN(pool, pool::Place(pool_attrs_, pool_x.shape()));
      MG_RETURN_IF_ERROR(pool::RequireShape(pool_x, g.OutputShape(), "the pooling's input"));
      MG_RETURN_IF_ERROR(pool::RequireShape(c.input(c.num_inputs() - 1), pool.pooled_shape,
                                            "the pooling's output"));
    }
    MG_RETURN_IF_ERROR(
        pool::RequireShape(dy, pooled_ ? pool.pooled_shape : g.OutputShape(), "out_backprop"));
    MG_ASSIGN_OR_RETURN(Tensor * filter_gradient, c.AllocateOutput(0, filter_shape));
    Tensor* dx = nullptr;
    if (wants_dx_) {
      MG_RETURN_IF_ERROR(pool::RequireShape(c.input(3), filter_shape, "the filter"));
      MG_ASSIGN_OR_RETURN(dx, c.AllocateOutput(1, x.shape()));
    }
    if (x.elements() == 0 || filter_gradient->elements() == 0 || g.OutputShape().elements() == 0) {
      std::memset(filter_gradient->raw(), 0, filter_gradient->bytes());
      if (dx != nullptr) std::memset(dx->raw(), 0, dx->bytes());
      return Status();
    }
    const auto optional = [&](bool there, int input) {
      return there ? c.input(input).data<T>() : nullptr;
    };
    const int pool_x = c.num_inputs() - 2, pool_y = c.num_inputs() - 1;
    const BackpropData<T> data{.x = x.data<T>(),
                               .filter = optional(wants_dx_, 3),
                               .dy = dy.data<T>(),
                               .pool_x = optional(pooled_, pool_x),
                               .pool_y = optional(pooled_, pool_y),
                               .filter_gradient = filter_gradient->data<T>(),
                               .dx = dx != nullptr ? dx->data<T>() : nullptr};
    if constexpr (std::is_same_v<T, float>) {
      return Run(c, g, pool, data);
    } else {
      if (onednn::HasBfloat16()) {
        const Status status = bfloat16_.Run(c, g, pool, data);
        if (status.code() != Code::kUnimplemented) return status;
      }
      std::vector<Tensor> floats;
      const auto widened = [&](const T* there, int input) -> Result<const float*> {
        if (there == nullptr) return nullptr;
        MG_ASSIGN_OR_RETURN(Tensor wide, ToFloat<T>(c, c.input(input)));
        floats.push_back(std::move(wide));
        return floats.back().data<float>();
      };
      BackpropData<float> wide;
      MG_ASSIGN_OR_RETURN(wide.x, widened(data.x, 0));
      MG_ASSIGN_OR_RETURN(wide.filter, widened(data.filter, 3));
      MG_ASSIGN_OR_RETURN(wide.dy, widened(data.dy, 2));
      MG_ASSIGN_OR_RETURN(wide.pool_x, widened(data.pool_x, pool_x));
      MG_ASSIGN_OR_RETURN(wide.pool_y, widened(data.pool_y, pool_y));
      MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_FLOAT, filter_shape));
      wide.filter_gradient = sums.data<float>();
      Tensor wide_dx;
      if (dx != nullptr) {
        MG_ASSIGN_OR_RETURN(wide_dx, c.AllocateTemp(DT_FLOAT, x.shape()));
        wide.dx = wide_dx.data<float>();
      }
      MG_RETURN_IF_ERROR(Run(c, g, pool, wide));
      FromFloat<T>(c, sums, filter_gradient);
      if (dx != nullptr) FromFloat<T>(c, wide_dx, dx);
      return Status();
    }
  }

 private:
  Status Run(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
             const BackpropData<float>& data) {
    const Status status = float_.Run(c, g, pool, data);
    return status.code() == Code::kUnimplemented ? RunPlain(c, g, pool, data) : status;
  }

  Status RunPlain(KernelContext& c, const Geometry& g, const pool::Geometry& pool,
                  const BackpropData<float>& data) {
    const float* dy = data.dy;
    Tensor spread;
    if (pooled_) {
      MG_ASSIGN_OR_RETURN(spread, c.AllocateTemp(DT_FLOAT, g.OutputShape()));
      pool::MaxGradient<float>::Run(pool, g.n, data.pool_x, data.pool_y, data.dy,
                                    spread.data<float>());
      dy = spread.data<float>();
    }
    Plain<float>(c, Mode::kBackpropFilter, g, {}, data.x, nullptr, nullptr, dy,
                 data.filter_gradient);
    if (data.dx != nullptr)
      Plain<float>(c, Mode::kBackpropInput, g, {}, nullptr, data.filter, nullptr, dy, data.dx);
    return Status();
  }

  Attrs attrs_, pool_attrs_;
  bool wants_dx_ = false, pooled_ = false;
  LibraryBackprop<float> float_;
  OfBfloat16<T, LibraryBackprop> bfloat16_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                               \
  for (const char* op : {"Conv2D", "_FusedConv2D", "DepthwiseConv2dNative", "Conv3D"})       \
    registry->Add<ConvKernel<T, Mode::kForward>>({.op = op, .types = {{"T", kDTypeOf<T>}}}); \
  for (const char* op : {"Conv2DBackpropInput", "_Conv2DBackpropInput",                      \
                         "DepthwiseConv2dNativeBackpropInput", "Conv3DBackpropInputV2"}) {   \
    registry->Add<ConvKernel<T, Mode::kBackpropInput>>(                                      \
        {.op = op, .types = {{"T", kDTypeOf<T>}}, .host_args = {"input_sizes"}});            \
  }                                                                                          \
  for (const char* op : {"Conv2DBackpropFilter", "_Conv2DBackpropFilter",                    \
                         "DepthwiseConv2dNativeBackpropFilter", "Conv3DBackpropFilterV2"}) { \
    registry->Add<ConvKernel<T, Mode::kBackpropFilter>>(                                     \
        {.op = op, .types = {{"T", kDTypeOf<T>}}, .host_args = {"filter_sizes"}});           \
  }                                                                                          \
  registry->Add<ConvKernel<T, Mode::kBackpropInput>>(                                        \
      {.op = "Conv3DBackpropInput", .types = {{"T", kDTypeOf<T>}}});                         \
  registry->Add<ConvKernel<T, Mode::kBackpropFilter>>(                                       \
      {.op = "Conv3DBackpropFilter", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
  registry->Add<BackpropKernel<float>>(
      {.op = "_Conv2DBackprop", .types = {{"T", DT_FLOAT}}, .host_args = {"filter_sizes"}});
  registry->Add<BackpropKernel<bfloat16>>(
      {.op = "_Conv2DBackprop", .types = {{"T", DT_BFLOAT16}}, .host_args = {"filter_sizes"}});
}

}  // namespace monograph::ops::conv