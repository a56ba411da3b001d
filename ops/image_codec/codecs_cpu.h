// JPEG by libjpeg and PNG by libpng: their errors, which jump, become InvalidArgument, and what a
// header says is looked at before memory is taken. Each row looks at cancellation; what is left of
// an aborted step's image is not decoded.
#pragma once

#include <string>
#include <string_view>

#include "executor/kernel.h"

namespace monograph::ops::image_codec {

struct JpegDecoding {
  int channels = 0;  // 0: as the file
  int ratio = 1;     // downscales by 1, 2, 4 or 8
  bool fancy_upscaling = true;
  bool recover_truncated = false;
  float acceptable_fraction = 1;  // of the rows; the others are black
  std::string dct_method = {};
};
// Into output 0, of uint8.
Status DecodeJpegFile(KernelContext& c, std::string_view file, const JpegDecoding& how);

struct JpegEncoding {
  int quality = 95;
  bool progressive = false, optimize_size = false, chroma_downsampling = true;
  bool per_inch = true;  // the density; else per centimetre
  int x_density = 300, y_density = 300;
  std::string xmp_metadata = {};
};
// image: uint8, [height, width, 1 or 3], of at least one pixel.
Status EncodeJpegFile(const KernelContext& c, const Tensor& image, const JpegEncoding& how,
                      std::string* file);

// Into output 0, of uint8 or uint16.
Status DecodePngFile(KernelContext& c, std::string_view file, int channels);
// image: uint8 or uint16, [height, width, 1 to 4], of at least one pixel.
Status EncodePngFile(const KernelContext& c, const Tensor& image, int compression,
                     std::string* file);

}  // namespace monograph::ops::image_codec
