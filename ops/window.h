// The geometry that convolution and pooling share: where windows lie over an image, in TensorFlow's
// terms (SAME, VALID, EXPLICIT).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "base/shape.h"
#include "base/status.h"
#include "graph/attr.h"

namespace monograph::ops {

// Windows along one dimension.
struct Window {
  int64_t in = -1;
  int64_t size = 1, stride = 1, dilation = 1;
  int64_t out = -1;                       // -1: unknown, as `in` is
  int64_t pad_before = 0, pad_after = 0;  // meaningful where `out` is known

  int64_t extent() const { return (size - 1) * dilation + 1; }
};

// Positions of batch, height, width and channels in a shape.
struct ImageFormat {
  int n = 0, h = 1, w = 2, c = 3;
};

inline Result<ImageFormat> ParseImageFormat(const std::string& format) {
  if (format == "NHWC") return ImageFormat{0, 1, 2, 3};
  if (format == "NCHW") return ImageFormat{0, 2, 3, 1};
  return InvalidArgument("data_format '" + format + "' is not supported; use 'NHWC' or 'NCHW'");
}

// Fills out and pads of `window` from its other fields. `before` and `after` are the pads of
// EXPLICIT.
inline Status PlaceWindow(const std::string& padding, int64_t before, int64_t after,
                          Window* window) {
  if (window->stride < 1 || window->dilation < 1 || window->size < 1) {
    return InvalidArgument("window size, stride and dilation must be at least 1, got " +
                           std::to_string(window->size) + ", " + std::to_string(window->stride) +
                           " and " + std::to_string(window->dilation));
  }
  // Within these limits no sum below leaves 63 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max(), kMostIn = int64_t{1} << 61;
  if (std::max({window->size, window->stride, window->dilation, before, after}) > kMost ||
      window->in > kMostIn) {
    return InvalidArgument(
        "window size, stride, dilation and padding must be less than 2^31, got " +
        std::to_string(window->size) + ", " + std::to_string(window->stride) + ", " +
        std::to_string(window->dilation) + " and " + std::to_string(std::max(before, after)) +
        " over " + std::to_string(window->in) + " elements");
  }
  if (window->in < 0) {
    window->out = -1;
    return Status();
  }
  if (padding == "SAME") {
    window->out = (window->in + window->stride - 1) / window->stride;
    const int64_t pad =
        std::max<int64_t>((window->out - 1) * window->stride + window->extent() - window->in, 0);
    window->pad_before = pad / 2;
    window->pad_after = pad - pad / 2;
    return Status();
  }
  window->pad_before = padding == "EXPLICIT" ? before : 0;
  window->pad_after = padding == "EXPLICIT" ? after : 0;
  const int64_t room = window->in + window->pad_before + window->pad_after - window->extent();
  if (room < 0) {
    return InvalidArgument("a window of " + std::to_string(window->extent()) + " does not fit in " +
                           std::to_string(window->in) + " with padding " + padding + " of " +
                           std::to_string(window->pad_before) + " and " +
                           std::to_string(window->pad_after));
  }
  window->out = room / window->stride + 1;
  return Status();
}

// Whether oneDNN may have such windows: it keeps places in 32 bits, and the code that it writes
// grows with their size.
inline bool FitsOnednn(const Window& w) {
  constexpr int64_t kMostPlaces = int64_t{1} << 29, kMostSize = 4096;
  return w.size <= kMostSize &&
         std::max({w.in, w.out, w.stride, w.extent(), w.pad_before, w.pad_after}) <= kMostPlaces;
}

// The value of a list attribute; nullptr if there is none, or it is empty. Copies nothing: kernels
// ask in every step.
inline const std::vector<int64_t>* ListAttr(const Attrs& attrs, const char* name) {
  const AttrValue* value = attrs.Find(name);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  return list == nullptr || list->empty() ? nullptr : list;
}

// A list of four integers, one per dimension of the format; those of batch and channels must be 1.
inline Status ImageAttr(const Attrs& attrs, const char* name, const ImageFormat& format, int64_t* h,
                        int64_t* w) {
  const std::vector<int64_t>* list = ListAttr(attrs, name);
  if (list == nullptr) {
    *h = *w = 1;
    return Status();
  }
  if (list->size() != 4) {
    return InvalidArgument(std::string(name) + " must have 4 entries, one per dimension, got " +
                           std::to_string(list->size()));
  }
  const auto at = [&](int dim) { return (*list)[static_cast<size_t>(dim)]; };
  if (at(format.n) != 1 || at(format.c) != 1) {
    return InvalidArgument(std::string(name) + " along the batch and the channels must be 1");
  }
  *h = at(format.h);
  *w = at(format.w);
  return Status();
}

// Positions of batch, depth, height, width and channels in the shape of volumes.
struct VolumeFormat {
  int n = 0, d = 1, h = 2, w = 3, c = 4;
};

inline Result<VolumeFormat> ParseVolumeFormat(const std::string& format) {
  if (format == "NDHWC") return VolumeFormat{};
  if (format == "NCDHW") return VolumeFormat{0, 2, 3, 4, 1};
  return InvalidArgument("data_format '" + format + "' is not supported; use 'NDHWC' or 'NCDHW'");
}

// A list of five integers, one per dimension of the format; those of batch and channels must be 1.
inline Status VolumeAttr(const Attrs& attrs, const char* name, const VolumeFormat& format,
                         int64_t* d, int64_t* h, int64_t* w) {
  const std::vector<int64_t>* list = ListAttr(attrs, name);
  if (list == nullptr) {
    *d = *h = *w = 1;
    return Status();
  }
  if (list->size() != 5) {
    return InvalidArgument(std::string(name) + " must have 5 entries, one per dimension, got " +
                           std::to_string(list->size()));
  }
  const auto at = [&](int dim) { return (*list)[static_cast<size_t>(dim)]; };
  if (at(format.n) != 1 || at(format.c) != 1) {
    return InvalidArgument(std::string(name) + " along the batch and the channels must be 1");
  }
  *d = at(format.d), *h = at(format.h), *w = at(format.w);
  return Status();
}

// Windows over volumes; `in` and `size` of each are given, -1 for unknown.
inline Status PlaceVolumeWindows(const Attrs& attrs, const VolumeFormat& format, Window* depth,
                                 Window* rows, Window* columns) {
  MG_RETURN_IF_ERROR(
      VolumeAttr(attrs, "strides", format, &depth->stride, &rows->stride, &columns->stride));
  MG_RETURN_IF_ERROR(VolumeAttr(attrs, "dilations", format, &depth->dilation, &rows->dilation,
                                &columns->dilation));
  const std::string& padding = attrs.Get<std::string>("padding");
  for (Window* window : {depth, rows, columns}) {
    if (window->size >= 0) MG_RETURN_IF_ERROR(PlaceWindow(padding, 0, 0, window));
  }
  return Status();
}

// Windows of pooling over volumes: their sizes are the attribute ksize.
inline Status PlaceVolumePools(const Attrs& attrs, const VolumeFormat& format, int64_t d, int64_t h,
                               int64_t w, Window* depth, Window* rows, Window* columns) {
  depth->in = d, rows->in = h, columns->in = w;
  MG_RETURN_IF_ERROR(VolumeAttr(attrs, "ksize", format, &depth->size, &rows->size, &columns->size));
  return PlaceVolumeWindows(attrs, format, depth, rows, columns);
}

// Both image dimensions: windows of size kh x kw over an h x w image (-1 for unknown) under the
// node's strides, dilations, padding.
inline Status PlaceWindows(const Attrs& attrs, const ImageFormat& format, int64_t h, int64_t w,
                           int64_t kh, int64_t kw, Window* rows, Window* columns) {
  rows->in = h, columns->in = w;
  rows->size = kh, columns->size = kw;
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "strides", format, &rows->stride, &columns->stride));
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "dilations", format, &rows->dilation, &columns->dilation));
  const std::string& padding = attrs.Get<std::string>("padding");
  const std::vector<int64_t>* pads = ListAttr(attrs, "explicit_paddings");
  if (padding == "EXPLICIT") {
    if (pads == nullptr || pads->size() != 8) {
      return InvalidArgument("padding EXPLICIT needs explicit_paddings with 8 entries, got " +
                             std::to_string(pads == nullptr ? 0 : pads->size()));
    }
    for (int64_t pad : *pads) {
      if (pad < 0) return InvalidArgument("explicit_paddings must not be negative");
    }
  } else if (pads != nullptr) {
    return InvalidArgument("explicit_paddings is for padding EXPLICIT; padding is " + padding);
  }
  const auto before = [&](int dim) {
    return pads == nullptr ? 0 : (*pads)[static_cast<size_t>(2 * dim)];
  };
  const auto after = [&](int dim) {
    return pads == nullptr ? 0 : (*pads)[static_cast<size_t>(2 * dim + 1)];
  };
  for (int dim : {format.n, format.c}) {
    if (before(dim) != 0 || after(dim) != 0)
      return InvalidArgument("explicit_paddings along the batch and the channels must be 0");
  }
  if (kh >= 0) MG_RETURN_IF_ERROR(PlaceWindow(padding, before(format.h), after(format.h), rows));
  if (kw >= 0) MG_RETURN_IF_ERROR(PlaceWindow(padding, before(format.w), after(format.w), columns));
  return Status();
}

}  // namespace monograph::ops
