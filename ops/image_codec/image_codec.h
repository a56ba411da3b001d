// Images as files in memory: DecodeJpeg, DecodePng, EncodeJpeg, EncodePng. Both decoders take both
// formats. An image is [height, width, channels].
#pragma once

#include <string>

#include "graph/scope.h"

namespace monograph {

// channels: 1, 3 or (of a PNG file) 4; 0: as many as the file has.
Output DecodeJpeg(const Scope& scope, const Output& contents, int64_t channels = 0);
// dtype: DT_UINT8 or DT_UINT16.
Output DecodePng(const Scope& scope, const Output& contents, int64_t channels = 0,
                 DType dtype = DT_UINT8);
// quality: 0 to 100.
Output EncodeJpeg(const Scope& scope, const Output& image, int64_t quality = 95);
// compression: 0 to 9, zlib's levels, or -1 for zlib's default.
Output EncodePng(const Scope& scope, const Output& image, int64_t compression = -1);

}  // namespace monograph
