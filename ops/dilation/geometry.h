// Where the windows of a dilation lie, for its shape functions and its kernels.
#pragma once

#include "ops/window.h"

namespace monograph::ops::dilation {

// Of an image of h x w elements under a filter of kh x kw; -1 for unknown.
inline Status Place(const Attrs& attrs, int64_t h, int64_t w, int64_t kh, int64_t kw, Window* rows,
                    Window* columns) {
  const ImageFormat format;
  rows->in = h, columns->in = w;
  rows->size = kh, columns->size = kw;
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "strides", format, &rows->stride, &columns->stride));
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "rates", format, &rows->dilation, &columns->dilation));
  const std::string& padding = attrs.Get<std::string>("padding");
  for (Window* window : {rows, columns}) {
    if (window->size >= 0) MG_RETURN_IF_ERROR(PlaceWindow(padding, 0, 0, window));
  }
  return Status();
}

}  // namespace monograph::ops::dilation
