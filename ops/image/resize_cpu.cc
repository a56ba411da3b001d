// Resizes and their gradients. A pixel of the result has a place between pixels of the image, in
// each dimension, computed in floats as TensorFlow does. The gradients go through the pixels of the
// result in order, and add to the pixels that each came from; images are shared out.
#include <cmath>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/image/image_cpu.h"

namespace monograph::ops::image {
namespace {

constexpr int64_t kMostPixels = std::numeric_limits<int32_t>::max();  // of one dimension

struct Centers {
  bool corners = false, half_pixel = false;

  static Result<Centers> Of(const KernelConstruction& k) {
    const Centers centers{k.attr<bool>("align_corners"), k.attr<bool>("half_pixel_centers")};
    if (centers.corners && centers.half_pixel) {
      return InvalidArgument("If half_pixel_centers is True, align_corners must be False.");
    }
    return centers;
  }
};

// The pixels before and behind a place, and the share of the latter.
struct Between {
  int64_t lower = 0, upper = 0;
  float share = 0;
};

// One dimension of a resize, of `in` pixels to `out`.
struct Line {
  int64_t in, out;
  Centers centers;
  float scale;

  Line(int64_t in_size, int64_t out_size, const Centers& where)
      : in(in_size), out(out_size), centers(where) {
    scale = centers.corners && out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1)
                                       : static_cast<float>(in) / static_cast<float>(out);
  }

  Between At(int64_t i) const {
    const float place = centers.half_pixel ? (static_cast<float>(i) + 0.5f) * scale - 0.5f
                                           : static_cast<float>(i) * scale;
    const float floor = std::floor(place);
    return {Inside(floor), Inside(std::ceil(place)), place - floor};
  }

  int64_t Nearest(int64_t i) const {
    const float place = (static_cast<float>(i) + (centers.half_pixel ? 0.5f : 0.0f)) * scale;
    return Inside(centers.corners ? std::round(place) : std::floor(place));
  }

 private:
  int64_t Inside(float place) const {
    return std::clamp<int64_t>(static_cast<int64_t>(place), 0, in - 1);
  }
};

// A height and a width.
Result<std::pair<int64_t, int64_t>> SizeFrom(const Tensor& tensor, const char* what) {
  if (tensor.shape().rank() != 1 || tensor.elements() != 2) {
    return InvalidArgument(std::string(what) + " must be a vector of two elements, got shape " +
                           tensor.shape().ToString());
  }
  const int64_t height = tensor.data<int32_t>()[0], width = tensor.data<int32_t>()[1];
  if (height <= 0 || width <= 0) {
    return InvalidArgument("output dimensions must be positive, got " + std::to_string(height) +
                           " x " + std::to_string(width));
  }
  return std::pair(height, width);
}

Status CheckImages(const Shape& shape, const char* what) {
  if (shape.rank() != 4) {
    return InvalidArgument(std::string(what) + " must be 4-dimensional, got " + shape.ToString());
  }
  if (shape[1] <= 0 || shape[2] <= 0 || shape[3] <= 0) {
    return InvalidArgument(std::string(what) +
                           " must have at least one pixel and one channel, got " +
                           shape.ToString());
  }
  if (shape[1] > kMostPixels || shape[2] > kMostPixels) {
    return InvalidArgument(std::string(what) + " sizes must be less than 2^31, got " +
                           shape.ToString());
  }
  return Status();
}

// The result of a resize of input 0 to the size that input 1 says.
Result<Tensor*> Resized(KernelContext& c) {
  const Shape& in = c.input(0).shape();
  MG_RETURN_IF_ERROR(CheckImages(in, "input"));
  MG_ASSIGN_OR_RETURN(const auto size, SizeFrom(c.input(1), "size"));
  const int64_t dims[] = {in[0], size.first, size.second, in[3]};
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  return c.AllocateOutput(0, shape);
}

// Calls fn(y, x, place of the pixel) for the pixels of each of `n` images of rows.out x
// columns.out; a thread has all of an image. cost: of one pixel.
template <typename Fn>
void ForImages(KernelContext& c, int64_t n, const Line& rows, const Line& columns, int64_t channels,
               const Fn& fn) {
  const int64_t pixels = rows.out * columns.out;
  const auto body = [&](int64_t begin, int64_t end) {
    Looks looks(c);
    for (int64_t image = begin; image < end; ++image) {
      for (int64_t y = 0; y < rows.out; ++y) {
        for (int64_t x = 0; x < columns.out && looks.GoOn(10 + 4 * channels); ++x)
          fn(image, y, x, ((image * rows.out + y) * columns.out + x) * channels);
      }
    }
  };
  c.ParallelFor(n, pixels * (10 + 4 * channels), std::ref(body));
}

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
  const Shape &grads = c.input(0).shape(), &images = c.input(1).shape();
  MG_RETURN_IF_ERROR(CheckImages(grads, "input_grad"));
  MG_RETURN_IF_ERROR(CheckImages(images, "original_image"));
  if (grads[0] != images[0] || grads[3] != images[3]) {
    return InvalidArgument("input_grad has shape " + grads.ToString() + ", which images of shape " +
                           images.ToString() + " cannot give");
  }
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, images));
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

template <Status (*kCompute)(KernelContext&, const Centers&)>
class ResizeKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    MG_ASSIGN_OR_RETURN(const Centers centers, Centers::Of(k));
    return std::unique_ptr<Kernel>(new ResizeKernel(centers));
  }
  Status Compute(KernelContext& c) override { return kCompute(c, centers_); }

 private:
  explicit ResizeKernel(const Centers& centers) : centers_(centers) {}

  const Centers centers_;
};

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
