// BMP files without compression, of 8, 24 or 32 bits, as TensorFlow reads them: a byte of a palette
// is taken for a grey level.
//   "BM" 8 bytes, offset:i32 of the pixels, 4 bytes, width:i32 height:i32 2 bytes, bits:i16
//   at the offset: rows of pixels, blue green red (alpha), each filled up to four bytes; from the
//   last row on, or from the first one if the height is negative
#include <algorithm>
#include <cstring>
#include <limits>

#include "ops/image_codec/codecs_cpu.h"

namespace monograph::ops::image_codec {
namespace {

constexpr size_t kHeaderBytes = 32;
constexpr int64_t kMostBmpPixels = std::numeric_limits<int32_t>::max() / 8;  // not reached

template <typename I>
int64_t NumberAt(std::string_view file, size_t offset) {
  I number;
  std::memcpy(&number, file.data() + offset, sizeof(number));
  return number;
}

// A pixel of `from` samples becomes one of `to`, with red first; what has no alpha is opaque.
void ConvertPixel(const uint8_t* pixel, int64_t from, uint8_t* image, int64_t to) {
  for (int64_t k = 0; k < std::min<int64_t>(to, 3); ++k) image[k] = pixel[from == 1 ? 0 : 2 - k];
  if (to == 4) image[3] = from == 4 ? pixel[3] : std::numeric_limits<uint8_t>::max();
}

}  // namespace

Status DecodeBmpFile(KernelContext& c, std::string_view file, int channels) {
  if (channels == 1) return InvalidArgument("channels must be 0, 3 or 4 for BMP, but got 1");
  if (file.size() < kHeaderBytes) {
    return InvalidArgument("Incomplete bmp content, requires at least 32 bytes, got " +
                           std::to_string(file.size()));
  }
  const auto offset = NumberAt<int32_t>(file, 10), width = NumberAt<int32_t>(file, 18),
             signed_height = NumberAt<int32_t>(file, 22), samples = NumberAt<int16_t>(file, 28) / 8,
             height = std::abs(signed_height);
  if (samples != 1 && samples != 3 && samples != 4) {
    return InvalidArgument("Number of channels inherent in the image must be 1, 3 or 4, was " +
                           std::to_string(samples));
  }
  if (width <= 0 || height == 0 || offset < 0 || width * height >= kMostBmpPixels) {
    return InvalidArgument("a BMP file of " + std::to_string(width) + " by " +
                           std::to_string(signed_height) + " pixels at byte " +
                           std::to_string(offset) + " is not read");
  }
  const int64_t row_bytes = (samples * width + 3) / 4 * 4, bytes = offset + row_bytes * height;
  if (bytes != static_cast<int64_t>(file.size())) {
    return InvalidArgument("Input size should match (header_size + row_size * abs_height) = " +
                           std::to_string(bytes) + ", got " + std::to_string(file.size()));
  }
  const int64_t wanted = channels == 0 ? samples : channels;
  MG_ASSIGN_OR_RETURN(Samples image, Samples::Make(c, Shape{height, width, wanted}, DT_UINT8));
  const auto* const pixels = reinterpret_cast<const uint8_t*>(file.data()) + offset;
  for (int64_t y = 0; y < height; ++y) {
    if (c.cancelled()) return StepAborted();
    const uint8_t* from = pixels + (signed_height < 0 ? y : height - 1 - y) * row_bytes;
    uint8_t* to = image.bytes() + y * width * wanted;
    for (int64_t x = 0; x < width; ++x, from += samples, to += wanted)
      ConvertPixel(from, samples, to, wanted);
  }
  return image.Finish(c);
}

}  // namespace monograph::ops::image_codec
