// Ops on images: ResizeBilinear, ResizeBicubic, ResizeNearestNeighbor, CropAndResize and their
// gradients, ResizeArea, ExtractImagePatches, AdjustContrastv2, AdjustHue, AdjustSaturation,
// RGBToHSV, HSVToRGB, DrawBoundingBoxes, NonMaxSuppression, SampleDistortedBoundingBox. Images are
// NHWC; colours are the last dimension of any tensor.
#pragma once

#include <string>
#include <vector>

#include "graph/scope.h"

namespace monograph {

struct ResizeOptions {
  bool align_corners = false;       // the corners' pixels have the same centers before and after
  bool half_pixel_centers = false;  // pixel i has its center at i + 0.5; not with align_corners
};

// Images of size[0] x size[1] pixels (int32): of the four nearest pixels, as floats; of the nearest
// four by four; or the nearest one.
Output ResizeBilinear(const Scope& scope, const Output& images, const Output& size,
                      const ResizeOptions& options = {});
Output ResizeBicubic(const Scope& scope, const Output& images, const Output& size,
                     const ResizeOptions& options = {});
Output ResizeNearestNeighbor(const Scope& scope, const Output& images, const Output& size,
                             const ResizeOptions& options = {});

// Each pixel is the mean of what it covers. Has no gradient.
Output ResizeArea(const Scope& scope, const Output& images, const Output& size,
                  bool align_corners = false);

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

// The outlines of boxes [n, boxes, 4], each [y1, x1, y2, x2] where 1 is the last row or column, in
// the rows of `colors` [any, channels], one after the other.
Output DrawBoundingBoxes(const Scope& scope, const Output& images, const Output& boxes,
                         const Output& colors);

// Of boxes [n, 4], the numbers (int32) of at most max_output_size by falling scores, all above
// score_threshold, of which none overlaps another by more than iou_threshold of both.
Output NonMaxSuppression(const Scope& scope, const Output& boxes, const Output& scores,
                         const Output& max_output_size, const Output& iou_threshold,
                         const Output& score_threshold);

struct RandomBoxOptions {
  int64_t seed = 0;  // the op's own; the scope's (Scope::WithSeed) is the other half
  std::vector<float> aspect_ratio_range{0.75f, 1.33f};  // of width / height
  std::vector<float> area_range{0.05f, 1};              // shares of the image's
  int64_t max_attempts = 100;
  bool use_image_if_no_bounding_boxes = false;
};
struct RandomBox {
  Output begin, size;  // for Slice, as the elements of image_size, with -1 for all channels
  Output box;          // [1, 1, 4]
};
// A random crop of an image of image_size [height, width, channels] that covers one of the boxes
// [any, any, 4], in [0, 1], by a share of at least min_object_covered; after max_attempts the whole
// image. With seeds these are TensorFlow's values: a node counts its runs.
RandomBox SampleDistortedBoundingBox(const Scope& scope, const Output& image_size,
                                     const Output& bounding_boxes, const Output& min_object_covered,
                                     const RandomBoxOptions& options = {});

}  // namespace monograph
