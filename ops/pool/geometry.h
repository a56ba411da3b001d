// The geometry of pooling, for the kernels of every device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "ops/gpu/device_code.h"
#include "ops/window.h"

namespace monograph::ops::pool {

// An image tensor, wherever its dimensions lie.
struct Image {
  int64_t n = 0, h = 0, w = 0, c = 0;
  int64_t sn = 0, sh = 0, sw = 0, sc = 0;  // strides in elements

  int64_t elements() const { return n * h * w * c; }
  static Image Of(const Shape& s, const ImageFormat& f) {
    int64_t strides[4];
    strides[3] = 1;
    for (int i = 2; i >= 0; --i) strides[i] = strides[i + 1] * s[i + 1];
    return {s[f.n], s[f.h], s[f.w], s[f.c], strides[f.n], strides[f.h], strides[f.w], strides[f.c]};
  }
};

// The part of a window that lies inside the image.
struct Inside {
  int64_t begin, end;
  MG_HD Inside(const Window& w, int64_t out)
      : begin(std::max<int64_t>(0, out * w.stride - w.pad_before)),
        end(std::min(w.in, out * w.stride - w.pad_before + w.size)) {}
  MG_HD int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

struct Geometry {
  Window rows, columns;
  Image image, pooled;
  Shape pooled_shape;

  // About how many elements the windows of one row read.
  int64_t reads_of_row() const {
    return columns.out * image.c * std::min(rows.size, rows.in) *
           std::min(columns.size, columns.in);
  }
  // Every element of the image lies in exactly one window.
  bool tiles() const {
    const auto one = [](const Window& w) {
      return w.stride == w.size && w.pad_before == 0 && w.out * w.stride >= w.in;
    };
    return one(rows) && one(columns);
  }
};

inline Result<Geometry> Place(const Attrs& attrs, const Shape& in) {
  if (in.rank() != 4) return InvalidArgument("pooling needs 4 dimensions, got " + in.ToString());
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(attrs.GetOr<std::string>("data_format", "NHWC")));
  Geometry g;
  int64_t kh = 1, kw = 1;
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "ksize", format, &kh, &kw));
  MG_RETURN_IF_ERROR(
      PlaceWindows(attrs, format, in[format.h], in[format.w], kh, kw, &g.rows, &g.columns));
  g.image = Image::Of(in, format);
  g.pooled_shape = in;
  g.pooled_shape.set_dim(format.h, g.rows.out);
  g.pooled_shape.set_dim(format.w, g.columns.out);
  g.pooled = Image::Of(g.pooled_shape, format);
  return g;
}

// The argument orig_input_shape of AvgPoolGrad.
inline Result<Shape> ImageShape(const Tensor& tensor) {
  if (tensor.shape().rank() != 1)
    return InvalidArgument("the input's shape must be a vector, got " + tensor.shape().ToString());
  if (tensor.elements() > kMaxRank) {
    return InvalidArgument("the input's shape must have at most " + std::to_string(kMaxRank) +
                           " elements, got " + std::to_string(tensor.elements()));
  }
  const std::vector<int64_t> dims(tensor.data<int32_t>(),
                                  tensor.data<int32_t>() + tensor.elements());
  return Shape::Make(dims);
}

inline Status RequireShape(const Tensor& tensor, const Shape& shape, const char* what) {
  if (tensor.shape() == shape) return Status();
  return InvalidArgument(std::string(what) + " has shape " + tensor.shape().ToString() +
                         ", the windows give " + shape.ToString());
}

}  // namespace monograph::ops::pool
