// Images as files in memory: DecodeJpeg, DecodePng, DecodeBmp, DecodeImage, DecodeAndCropJpeg,
// ExtractJpegShape, EncodeJpeg, EncodePng. DecodeJpeg and DecodePng both take JPEG and PNG files,
// DecodeImage BMP files, too. An image is [height, width, channels].
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// channels: 1, 3 or (of a PNG file) 4; 0: as many as the file has.
Output DecodeJpeg(const Scope& scope, const Output& contents, int64_t channels = 0);
// dtype: DT_UINT8 or DT_UINT16.
Output DecodePng(const Scope& scope, const Output& contents, int64_t channels = 0,
                 DType dtype = DT_UINT8);
// BMP files without compression. channels: 3 or 4; 0: as many as the file has.
Output DecodeBmp(const Scope& scope, const Output& contents, int64_t channels = 0);
// dtype: DT_UINT8, DT_UINT16 or DT_FLOAT, of which the last is in [0, 1].
Output DecodeImage(const Scope& scope, const Output& contents, int64_t channels = 0,
                   DType dtype = DT_UINT8);
// crop_window: int32 [y, x, height, width], which lies in the image.
Output DecodeAndCropJpeg(const Scope& scope, const Output& contents, const Output& crop_window,
                         int64_t channels = 0);
// Height, width and channels, without the pixels.
Output ExtractJpegShape(const Scope& scope, const Output& contents);
// quality: 0 to 100.
Output EncodeJpeg(const Scope& scope, const Output& image, int64_t quality = 95);
// compression: 0 to 9, zlib's levels, or -1 for zlib's default.
Output EncodePng(const Scope& scope, const Output& image, int64_t compression = -1);

}  // namespace monograph
