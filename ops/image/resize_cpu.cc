// Resizes to the nearest pixel and between two, and their gradients. The gradients go through the
// pixels of the result in order, and add to the pixels that each came from; images are shared out.
#include "ops/image/resize_cpu.h"

#include "ops/cpu/element_types_cpu.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::image {
namespace {

template <typename T>
Status Bilinear(KernelContext& c, const Centers& centers) {
  const Shape& in = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(Tensor * out, Resized(c));
  const Line rows(in[1], out->shape()[1], centers), columns(in[2], out->shape()[2], centers);
  const T* const images = c.input(0).data<T>();
  float* const to = out->data<float>();
  const int64_t channels = in[3];
  ForPixels(c, out->shape(), 4, [=](const PixelPart& p) {
    const Between y = rows.At(p.y), x = columns.At(p.x);
    const auto pixel = [&](int64_t row, int64_t column) {
      return images + ((p.n * rows.in + row) * columns.in + column) * channels;
    };
    const T *top_left = pixel(y.lower, x.lower), *top_right = pixel(y.lower, x.upper),
            *bottom_left = pixel(y.upper, x.lower), *bottom_right = pixel(y.upper, x.upper);
    for (int64_t k = p.begin; k < p.end; ++k) {
      const auto a = static_cast<float>(top_left[k]), b = static_cast<float>(top_right[k]),
                 d = static_cast<float>(bottom_left[k]), e = static_cast<float>(bottom_right[k]);
      const float top = a + (b - a) * x.share, bottom = d + (e - d) * x.share;
      to[p.at + k - p.begin] = top + (bottom - top) * y.share;
    }
  });
  return Status();
}

template <typename T>
Status BilinearGrad(KernelContext& c, const Centers& centers) {
  using Sum = Accumulator<T>;
  MG_ASSIGN_OR_RETURN(Tensor * out, ResizedFrom(c));
  const Shape &grads = c.input(0).shape(), &images = out->shape();
  MG_ASSIGN_OR_RETURN(const Tensor sums, (ZeroSums<T, Sum>(c, *out)));
  const Line rows(images[1], grads[1], centers), columns(images[2], grads[2], centers);
  const float* const from = c.input(0).data<float>();
  Sum* const to = const_cast<Sum*>(sums.data<Sum>());
  const int64_t channels = images[3];
  ForImages(
      c, images[0], rows, columns, channels, [&](int64_t n, int64_t y, int64_t x, int64_t at) {
        const Between v = rows.At(y), h = columns.At(x);
        const auto pixel = [&](int64_t row, int64_t column) {
          return to + ((n * rows.in + row) * columns.in + column) * channels;
        };
        Sum *top_left = pixel(v.lower, h.lower), *top_right = pixel(v.lower, h.upper),
            *bottom_left = pixel(v.upper, h.lower), *bottom_right = pixel(v.upper, h.upper);
        InPieces(c, channels, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const float grad = from[at + k], top = grad * (1 - v.share), bottom = grad * v.share;
            top_left[k] += static_cast<Sum>(top * (1 - h.share));
            top_right[k] += static_cast<Sum>(top * h.share);
            bottom_left[k] += static_cast<Sum>(bottom * (1 - h.share));
            bottom_right[k] += static_cast<Sum>(bottom * h.share);
          }
        });
      });
  StoreSums<T, Sum>(c, sums, out);
  return Status();
}

template <typename T>
Status Nearest(KernelContext& c, const Centers& centers) {
  const Shape& in = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(Tensor * out, Resized(c));
  const Line rows(in[1], out->shape()[1], centers), columns(in[2], out->shape()[2], centers);
  const T* const images = c.input(0).data<T>();
  T* const to = out->data<T>();
  const int64_t channels = in[3];
  ForPixels(c, out->shape(), 2, [=](const PixelPart& p) {
    const int64_t row = p.n * rows.in + rows.Nearest(p.y);
    const T* from = images + (row * columns.in + columns.Nearest(p.x)) * channels;
    std::copy(from + p.begin, from + p.end, to + p.at);
  });
  return Status();
}

template <typename T>
Status NearestGrad(KernelContext& c, const Centers& centers) {
  using Sum = Accumulator<T>;
  const Shape& grads = c.input(0).shape();
  MG_ASSIGN_OR_RETURN(Tensor * out, Resized(c));
  MG_ASSIGN_OR_RETURN(const Tensor sums, (ZeroSums<T, Sum>(c, *out)));
  const Line rows(out->shape()[1], grads[1], centers), columns(out->shape()[2], grads[2], centers);
  const T* const from = c.input(0).data<T>();
  Sum* const to = const_cast<Sum*>(sums.data<Sum>());
  const int64_t channels = grads[3];
  ForImages(c, grads[0], rows, columns, channels, [&](int64_t n, int64_t y, int64_t x, int64_t at) {
    const int64_t row = n * rows.in + rows.Nearest(y);
    Sum* const pixel = to + (row * columns.in + columns.Nearest(x)) * channels;
    InPieces(c, channels, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        pixel[k] = static_cast<Sum>(pixel[k] + static_cast<Sum>(from[at + k]));
    });
  });
  StoreSums<T, Sum>(c, sums, out);
  return Status();
}

}  // namespace

void RegisterResizes(KernelRegistry* registry) {
#define MG_ADD(T, name, function) \
  registry->Add<ResizeKernel<&function<T>>>({.op = name, .types = {{"T", kDTypeOf<T>}}});
#define MG_ADD_RESIZES(T)               \
  MG_ADD(T, "ResizeBilinear", Bilinear) \
  MG_ADD(T, "ResizeNearestNeighbor", Nearest)
#define MG_ADD_BILINEAR_GRAD(T) MG_ADD(T, "ResizeBilinearGrad", BilinearGrad)
#define MG_ADD_NEAREST_GRAD(T) MG_ADD(T, "ResizeNearestNeighborGrad", NearestGrad)
  MG_NUMBER_TYPES(MG_ADD_RESIZES)
  MG_ADD_RESIZES(uint8_t)
  MG_ADD_RESIZES(int8_t)
  MG_ADD_RESIZES(int16_t)
  MG_ADD_RESIZES(uint16_t)
  MG_FLOAT_TYPES(MG_ADD_BILINEAR_GRAD)
  MG_FLOAT_TYPES(MG_ADD_NEAREST_GRAD)
  MG_ADD_NEAREST_GRAD(int32_t)
  MG_ADD_NEAREST_GRAD(uint8_t)
  MG_ADD_NEAREST_GRAD(int8_t)
#undef MG_ADD_NEAREST_GRAD
#undef MG_ADD_BILINEAR_GRAD
#undef MG_ADD_RESIZES
#undef MG_ADD
}

}  // namespace monograph::ops::image
