// Where the pixels of a resized image lie between those of the image, in each dimension, computed
// in floats as TensorFlow does; the checks and the loops that resizes share.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "ops/cpu/looks_cpu.h"
#include "ops/image/image_cpu.h"

namespace monograph::ops::image {

inline constexpr int64_t kMostPixels = std::numeric_limits<int32_t>::max();  // of one dimension

struct Centers {
  bool corners = false, half_pixel = false;

  static Result<Centers> Of(const KernelConstruction& k) {
    constexpr const char* kHalf = "half_pixel_centers";  // ResizeArea has none
    const Centers centers{k.attr<bool>("align_corners"),
                          k.attrs().Find(kHalf) != nullptr && k.attr<bool>(kHalf)};
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

  float Place(int64_t i) const {
    return centers.half_pixel ? (static_cast<float>(i) + 0.5f) * scale - 0.5f
                              : static_cast<float>(i) * scale;
  }

  Between At(int64_t i) const {
    const float place = Place(i), floor = std::floor(place);
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
inline Result<std::pair<int64_t, int64_t>> SizeFrom(const Tensor& tensor, const char* what) {
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

inline Status CheckImages(const Shape& shape, const char* what) {
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
inline Result<Tensor*> Resized(KernelContext& c) {
  const Shape& in = c.input(0).shape();
  MG_RETURN_IF_ERROR(CheckImages(in, "input"));
  MG_ASSIGN_OR_RETURN(const auto size, SizeFrom(c.input(1), "size"));
  const int64_t dims[] = {in[0], size.first, size.second, in[3]};
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  return c.AllocateOutput(0, shape);
}

// The images that gradients came for: input 1 of a gradient, which has its shape as output.
inline Result<Tensor*> ResizedFrom(KernelContext& c) {
  const Shape &grads = c.input(0).shape(), &images = c.input(1).shape();
  MG_RETURN_IF_ERROR(CheckImages(grads, "input_grad"));
  MG_RETURN_IF_ERROR(CheckImages(images, "original_image"));
  if (grads[0] != images[0] || grads[3] != images[3]) {
    return InvalidArgument("input_grad has shape " + grads.ToString() + ", which images of shape " +
                           images.ToString() + " cannot give");
  }
  return c.AllocateOutput(0, images);
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

}  // namespace monograph::ops::image
