// CropAndResize and its gradients. Each pixel of a crop has a place in its image, computed in
// floats as TensorFlow does; one outside of the image, or at no number, takes the value that is
// given, and has no gradient. What boxes add to images is computed by one thread, in their order;
// what pixels add to a box, by one thread for each box.
#include <cmath>

#include "ops/check_indices.h"
#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/device_code.h"
#include "ops/image/image_cpu.h"

namespace monograph::ops::image {
namespace {

constexpr int64_t kMostCropped = std::numeric_limits<int32_t>::max();  // pixels of one dimension

// Where a pixel of a crop lies in one dimension.
struct Place {
  bool inside = false;
  int64_t lower = 0, upper = 0, nearest = 0;
  float share = 0;  // of `upper`
};

// One dimension of a box, from `begin` to `end`.
struct Side {
  int64_t in, out;
  float begin, end;

  float last() const { return static_cast<float>(in - 1); }
  // Of the image's pixels, for each of the crop.
  float ratio() const { return out > 1 ? last() / static_cast<float>(out - 1) : 0; }

  Place At(int64_t i) const {
    const float place =
        out > 1 ? begin * last() +
                      static_cast<float>(i) * ((end - begin) * last() / static_cast<float>(out - 1))
                : static_cast<float>(0.5 * static_cast<double>(begin + end) *
                                     static_cast<double>(in - 1));
    if (!(place >= 0 && place <= last())) return {};
    const auto index = [this](float x) { return std::min(static_cast<int64_t>(x), in - 1); };
    return {.inside = true,
            .lower = index(std::floor(place)),
            .upper = index(std::ceil(place)),
            .nearest = index(std::round(place)),
            .share = place - std::floor(place)};
  }
};

// Boxes over images of `images`, cropped to height x width.
struct Crops {
  Shape images;
  int64_t boxes = 0, height = 0, width = 0;
  const float* corners = nullptr;
  const int32_t* indices = nullptr;

  int64_t channels() const { return images[3]; }
  Side rows(int64_t box) const {
    return {images[1], height, corners[4 * box], corners[4 * box + 2]};
  }
  Side columns(int64_t box) const {
    return {images[2], width, corners[4 * box + 1], corners[4 * box + 3]};
  }
  int64_t Pixel(int64_t box, int64_t row, int64_t column) const {
    return ((indices[box] * images[1] + row) * images[2] + column) * channels();
  }
};

Status CheckSizes(const char* what, int64_t height, int64_t width) {
  if (height > 0 && width > 0 && height <= kMostCropped && width <= kMostCropped) return Status();
  return InvalidArgument(std::string(what) + " dimensions must be positive, got " +
                         std::to_string(height) + " x " + std::to_string(width));
}

Result<Crops> CropsOf(const Shape& images, const Tensor& boxes, const Tensor& indices,
                      int64_t height, int64_t width) {
  if (images.rank() != 4) {
    return InvalidArgument("input image must be 4-D, got shape " + images.ToString());
  }
  MG_RETURN_IF_ERROR(CheckSizes("image", images[1], images[2]));
  MG_RETURN_IF_ERROR(CheckSizes("crop", height, width));
  Crops crops{.images = images, .height = height, .width = width};
  if (boxes.elements() == 0 && indices.elements() == 0) return crops;
  if (boxes.shape().rank() != 2 || boxes.shape()[1] != 4) {
    return InvalidArgument("boxes must be 2-D with 4 columns, got shape " +
                           boxes.shape().ToString());
  }
  crops.boxes = boxes.shape()[0];
  if (indices.shape().rank() != 1 || indices.elements() != crops.boxes) {
    return InvalidArgument("box_index must be 1-D with a number for each of " +
                           std::to_string(crops.boxes) + " boxes, got shape " +
                           indices.shape().ToString());
  }
  MG_RETURN_IF_ERROR(CheckIndices(indices.values<int32_t>(), images[0], "box_index"));
  crops.corners = boxes.data<float>();
  crops.indices = indices.data<int32_t>();
  return crops;
}

// Of gradients that came for crops.
Result<Crops> CropsOfGrads(const Tensor& grads, const Shape& images, const Tensor& boxes,
                           const Tensor& indices) {
  const Shape& shape = grads.shape();
  if (shape.rank() != 4) {
    return InvalidArgument("grads image must be 4-D, got shape " + shape.ToString());
  }
  MG_ASSIGN_OR_RETURN(const Crops crops, CropsOf(images, boxes, indices, shape[1], shape[2]));
  if (shape[0] != crops.boxes || shape[3] != crops.channels()) {
    return InvalidArgument("grads have shape " + shape.ToString() + ", but there are " +
                           std::to_string(crops.boxes) + " boxes of " +
                           std::to_string(crops.channels()) + " channels");
  }
  return crops;
}

template <typename T>
Status Crop(KernelContext& c, const Attrs& attrs) {
  const Tensor& size = c.input(3);
  if (size.shape().rank() != 1 || size.elements() != 2) {
    return InvalidArgument("crop_size must be a vector of two elements, got shape " +
                           size.shape().ToString());
  }
  MG_ASSIGN_OR_RETURN(const Crops crops, CropsOf(c.input(0).shape(), c.input(1), c.input(2),
                                                 size.data<int32_t>()[0], size.data<int32_t>()[1]));
  const int64_t dims[] = {crops.boxes, crops.height, crops.width, crops.channels()};
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
  const T* const image = c.input(0).data<T>();
  float* const to = out->data<float>();
  const float outside = attrs.Get<float>("extrapolation_value");
  const bool nearest = attrs.Get<std::string>("method") == "nearest";
  ForPixels(c, shape, 6, [&](const PixelPart& p) {
    const Place y = crops.rows(p.n).At(p.y), x = crops.columns(p.n).At(p.x);
    float* const pixel = to + p.at - p.begin;
    if (!y.inside || !x.inside) {
      std::fill(pixel + p.begin, pixel + p.end, outside);
      return;
    }
    if (nearest) {
      const T* from = image + crops.Pixel(p.n, y.nearest, x.nearest);
      for (int64_t k = p.begin; k < p.end; ++k) pixel[k] = static_cast<float>(from[k]);
      return;
    }
    const T *top_left = image + crops.Pixel(p.n, y.lower, x.lower),
            *top_right = image + crops.Pixel(p.n, y.lower, x.upper),
            *bottom_left = image + crops.Pixel(p.n, y.upper, x.lower),
            *bottom_right = image + crops.Pixel(p.n, y.upper, x.upper);
    for (int64_t k = p.begin; k < p.end; ++k) {
      const auto a = static_cast<float>(top_left[k]), b = static_cast<float>(top_right[k]),
                 d = static_cast<float>(bottom_left[k]), e = static_cast<float>(bottom_right[k]);
      const float top = a + (b - a) * x.share, bottom = d + (e - d) * x.share;
      pixel[k] = top + (bottom - top) * y.share;
    }
  });
  return Status();
}

// Calls fn(row, column, place of y, place of x) for the pixels of a crop that lie in the image.
template <typename Fn>
void ForInsideOf(const Crops& crops, int64_t box, Looks* looks, const Fn& fn) {
  const Side rows = crops.rows(box), columns = crops.columns(box);
  for (int64_t y = 0; y < crops.height && looks->GoOn(10); ++y) {
    const Place row = rows.At(y);
    if (!row.inside) continue;
    for (int64_t x = 0; x < crops.width && looks->GoOn(10 + 6 * crops.channels()); ++x) {
      const Place column = columns.At(x);
      if (column.inside) fn(y, x, row, column);
    }
  }
}

template <typename T>
Status CropGradImage(KernelContext& c, const Attrs& attrs) {
  using Sum = Accumulator<T>;
  const Tensor& size = c.input(3);
  if (size.shape().rank() != 1 || size.elements() != 4) {
    return InvalidArgument("image_size must be a vector of four elements, got shape " +
                           size.shape().ToString());
  }
  MG_ASSIGN_OR_RETURN(const Shape images, ShapeFrom(size, "image_size"));
  MG_ASSIGN_OR_RETURN(const Crops crops, CropsOfGrads(c.input(0), images, c.input(1), c.input(2)));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, images));
  MG_ASSIGN_OR_RETURN(Tensor sums, (ZeroSums<T, Sum>(c, *out)));
  const float* const grads = c.input(0).data<float>();
  Sum* const to = sums.data<Sum>();
  const bool nearest = attrs.Get<std::string>("method") == "nearest";
  const int64_t channels = crops.channels();
  Looks looks(c);
  for (int64_t box = 0; channels > 0 && box < crops.boxes; ++box) {
    ForInsideOf(crops, box, &looks,
                [&](int64_t row, int64_t column, const Place& y, const Place& x) {
                  const float* const grad =
                      grads + ((box * crops.height + row) * crops.width + column) * channels;
                  // A share of the gradient to one pixel.
                  const auto add = [&](int64_t at_y, int64_t at_x, float share_y, float share_x) {
                    Sum* const pixel = to + crops.Pixel(box, at_y, at_x);
                    InPieces(c, channels, [=](int64_t begin, int64_t end) {
                      for (int64_t k = begin; k < end; ++k)
                        pixel[k] += static_cast<Sum>(share_x * (share_y * grad[k]));
                    });
                  };
                  if (nearest) {
                    add(y.nearest, x.nearest, 1, 1);
                    return;
                  }
                  add(y.lower, x.lower, 1 - y.share, 1 - x.share);
                  add(y.lower, x.upper, 1 - y.share, x.share);
                  add(y.upper, x.lower, y.share, 1 - x.share);
                  add(y.upper, x.upper, y.share, x.share);
                });
  }
  StoreSums<T, Sum>(c, sums, out);
  return Status();
}

// What a crop's pixels say of its box's corners, into box[0..3].
template <typename T>
void AddToBox(const KernelContext& c, const Crops& crops, int64_t box, const T* image,
              const float* grads, Looks* looks, float* corners) {
  const Side rows = crops.rows(box), columns = crops.columns(box);
  const int64_t channels = crops.channels();
  float y1 = 0, x1 = 0, y2 = 0, x2 = 0;
  ForInsideOf(crops, box, looks, [&](int64_t row, int64_t column, const Place& y, const Place& x) {
    const float* const grad =
        grads + ((box * crops.height + row) * crops.width + column) * channels;
    const T *top_left = image + crops.Pixel(box, y.lower, x.lower),
            *top_right = image + crops.Pixel(box, y.lower, x.upper),
            *bottom_left = image + crops.Pixel(box, y.upper, x.lower),
            *bottom_right = image + crops.Pixel(box, y.upper, x.upper);
    // How much of a place follows from each end of a side.
    const auto place = static_cast<float>(row), other = static_cast<float>(column);
    const float from_y2 = rows.out > 1 ? place * rows.ratio() : 0.5f * rows.last(),
                from_x2 = columns.out > 1 ? other * columns.ratio() : 0.5f * columns.last();
    const float from_y1 = rows.last() - from_y2, from_x1 = columns.last() - from_x2;
    InPieces(c, channels, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const auto a = static_cast<float>(top_left[k]), b = static_cast<float>(top_right[k]),
                   d = static_cast<float>(bottom_left[k]), e = static_cast<float>(bottom_right[k]);
        const float along_y = grad[k] * ((1 - x.share) * (d - a) + x.share * (e - b));
        const float along_x = grad[k] * ((1 - y.share) * (b - a) + y.share * (e - d));
        y1 += along_y * from_y1, y2 += along_y * from_y2;
        x1 += along_x * from_x1, x2 += along_x * from_x2;
      }
    });
  });
  corners[0] = y1, corners[1] = x1, corners[2] = y2, corners[3] = x2;
}

template <typename T>
Status CropGradBoxes(KernelContext& c, const Attrs&) {
  MG_ASSIGN_OR_RETURN(const Crops crops,
                      CropsOfGrads(c.input(0), c.input(1).shape(), c.input(2), c.input(3)));
  MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{crops.boxes, 4}));
  const T* const image = c.input(1).data<T>();
  const float* const grads = c.input(0).data<float>();
  float* const to = out->data<float>();
  const auto body = [&](int64_t begin, int64_t end) {
    Looks looks(c);
    for (int64_t box = begin; box < end; ++box)
      AddToBox(c, crops, box, image, grads, &looks, to + 4 * box);
  };
  const int64_t cost = crops.height * crops.width * (10 + 6 * crops.channels());
  c.ParallelFor(crops.boxes, cost, std::ref(body));
  return Status();
}

}  // namespace

void RegisterCrops(KernelRegistry* registry) {
#define MG_ADD(T, name, function) \
  registry->Add<FunctionKernel<&function<T>>>({.op = name, .types = {{"T", kDTypeOf<T>}}});
#define MG_ADD_CROPS(T)            \
  MG_ADD(T, "CropAndResize", Crop) \
  MG_ADD(T, "CropAndResizeGradBoxes", CropGradBoxes)
  MG_ADD_CROPS(float)
  MG_ADD_CROPS(double)
  MG_ADD_CROPS(half)
  MG_ADD_CROPS(int32_t)
  MG_ADD_CROPS(int64_t)
  MG_ADD_CROPS(uint8_t)
  MG_ADD_CROPS(int8_t)
  MG_ADD_CROPS(uint16_t)
  MG_ADD_CROPS(int16_t)
  MG_ADD(float, "CropAndResizeGradImage", CropGradImage)
  MG_ADD(double, "CropAndResizeGradImage", CropGradImage)
  MG_ADD(half, "CropAndResizeGradImage", CropGradImage)
#undef MG_ADD_CROPS
#undef MG_ADD
}

}  // namespace monograph::ops::image
