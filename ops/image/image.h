// Ops on images: ResizeBilinear, ResizeNearestNeighbor, CropAndResize and their gradients,
// ExtractImagePatches, AdjustContrastv2, AdjustHue, AdjustSaturation, RGBToHSV, HSVToRGB. Images
// are NHWC; colours are the last dimension of any tensor.
#pragma once

#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct ResizeOptions {
  bool align_corners = false;       // the corners' pixels have the same centers before and after
  bool half_pixel_centers = false;  // pixel i has its center at i + 0.5; not with align_corners
};

// Images of size[0] x size[1] pixels (int32): of the four nearest pixels, as floats; or the nearest
// one.
Output ResizeBilinear(const Scope& scope, const Output& images, const Output& size,
                      const ResizeOptions& options = {});
Output ResizeNearestNeighbor(const Scope& scope, const Output& images, const Output& size,
                             const ResizeOptions& options = {});

// Box i, [y1, x1, y2, x2] of image box_ind[i], where 1 is the last row or column, resized to
// crop_size. Pixels outside of the image are `extrapolation_value`. method: "bilinear" or
// "nearest".
Output CropAndResize(const Scope& scope, const Output& image, const Output& boxes,
                     const Output& box_ind, const Output& crop_size,
                     const std::string& method = "bilinear", float extrapolation_value = 0);

// The windows of an image as channels. ksizes, strides, rates: one per dimension, 1 for the batch
// and the channels; padding: "SAME" or "VALID".
Output ExtractImagePatches(const Scope& scope, const Output& images,
                           const std::vector<int64_t>& ksizes, const std::vector<int64_t>& strides,
                           const std::vector<int64_t>& rates, const std::string& padding);

// (x - mean of its image and channel) * contrast_factor + mean.
Output AdjustContrast(const Scope& scope, const Output& images, const Output& contrast_factor);
// The hue turned by `delta`, of which 1 is a full turn; the saturation times `scale`, in [0, 1].
Output AdjustHue(const Scope& scope, const Output& images, const Output& delta);
Output AdjustSaturation(const Scope& scope, const Output& images, const Output& scale);
// Red, green, blue to hue, saturation, value and back; all in [0, 1].
Output RGBToHSV(const Scope& scope, const Output& images);
Output HSVToRGB(const Scope& scope, const Output& images);

}  // namespace monograph
