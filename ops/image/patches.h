// Where the patches of ExtractImagePatches lie, for its shape function and its kernel.
#pragma once

#include <limits>

#include "ops/window.h"

namespace monograph::ops::image {

struct Patches {
  Window rows, columns;

  // Of the result, for images of so many.
  Result<int64_t> Channels(int64_t channels) const {
    const int64_t places = rows.size * columns.size;  // below 2^62
    if (channels > 0 && places > std::numeric_limits<int64_t>::max() / channels) {
      return InvalidArgument("patches of " + std::to_string(rows.size) + " x " +
                             std::to_string(columns.size) + " pixels of " +
                             std::to_string(channels) + " channels are too large");
    }
    return places * channels;
  }
};

// Of images of height x width pixels; -1 for unknown.
inline Result<Patches> PatchesOf(const Attrs& attrs, int64_t height, int64_t width) {
  const ImageFormat format;
  Patches p;
  p.rows.in = height, p.columns.in = width;
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "ksizes", format, &p.rows.size, &p.columns.size));
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "strides", format, &p.rows.stride, &p.columns.stride));
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "rates", format, &p.rows.dilation, &p.columns.dilation));
  const std::string& padding = attrs.Get<std::string>("padding");
  MG_RETURN_IF_ERROR(PlaceWindow(padding, 0, 0, &p.rows));
  MG_RETURN_IF_ERROR(PlaceWindow(padding, 0, 0, &p.columns));
  return p;
}

}  // namespace monograph::ops::image
