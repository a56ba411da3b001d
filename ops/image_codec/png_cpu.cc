// PNG files. libpng is told once what is wanted (channels, bits), and converts each row. It reports
// errors by a jump over its own frames, to setjmp in Guard: what stands between the two has no
// destructors.
#include <png.h>

#include <cstring>

#include "ops/cpu/pieces_cpu.h"
#include "ops/image_codec/codecs_cpu.h"
#include "ops/image_codec/guard_cpu.h"

namespace monograph::ops::image_codec {
namespace {

// As TensorFlow has them.
constexpr int64_t kMostPngSide = int64_t{1} << 27, kMostPngPixels = int64_t{1} << 29;

// What libpng says, of one file.
struct PngReports : Guard {
  static void OnError(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngReports*>(png_get_error_ptr(png));
    std::strncpy(self->message, text, sizeof(self->message) - 1);
    std::longjmp(self->jump, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}
};

class PngDecoder {
 public:
  explicit PngDecoder(std::string_view file) : rest_(file), size_(file.size()) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Reads what stands before the pixels; the size of the result is known then.
  Status Begin(int channels, int bits) {
    if (!reports_.Calls([&] {
          png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reports_, PngReports::OnError,
                                        PngReports::OnWarning);
          if (png_ == nullptr) return;
          info_ = png_create_info_struct(png_);
          if (info_ == nullptr) return;
          png_set_read_fn(png_, this, Read);
          png_read_info(png_, info_);
        })) {
      return Invalid("Invalid PNG header, data size ");
    }
    if (png_ == nullptr || info_ == nullptr) return ResourceExhausted("no memory for libpng");
    height_ = png_get_image_height(png_, info_), width_ = png_get_image_width(png_, info_);
    if (height_ <= 0 || width_ <= 0 || height_ >= kMostPngSide || width_ >= kMostPngSide ||
        height_ * width_ >= kMostPngPixels) {
      return InvalidArgument("PNG size too large for int: " + std::to_string(width_) + " by " +
                             std::to_string(height_));
    }
    size_t row_bytes = 0;
    if (!reports_.Calls([&] {
          Convert(channels, bits);
          png_read_update_info(png_, info_);
          row_bytes = png_get_rowbytes(png_, info_);
        }) ||
        row_bytes != static_cast<size_t>(width_ * channels_ * (widen_ ? 1 : bits / 8))) {
      return Invalid("Invalid PNG header, data size ");
    }
    return Status();
  }

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }

  // The rows, of row_bytes each.
  Status Decode(const KernelContext& c, uint8_t* to, int64_t row_bytes) {
    for (int pass = 0; pass < passes_; ++pass) {
      for (int64_t y = 0; y < height_; ++y) {
        if (c.cancelled()) return StepAborted();
        if (!reports_.Calls([&] { png_read_row(png_, to + y * row_bytes, nullptr); }))
          return Invalid("Invalid PNG data, size ");
      }
    }
    if (!widen_) return Status();
    // From the last one on, as they lie in the same memory.
    for (int64_t y = 0; y < height_ && !c.cancelled(); ++y) {
      uint8_t* const row = to + y * row_bytes;
      for (int64_t i = row_bytes / 2; i-- > 0;) row[2 * i + 1] = row[2 * i] = row[i];
    }
    return Status();
  }

 private:
  static void Read(png_structp png, png_bytep to, size_t bytes) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (bytes > self->rest_.size()) png_error(png, "the file ends too early");
    std::memcpy(to, self->rest_.data(), bytes);
    self->rest_.remove_prefix(bytes);
  }

  // Tells libpng what is wanted; channels 0: as the file.
  void Convert(int channels, int bits) {
    const int depth = png_get_bit_depth(png_, info_), type = png_get_color_type(png_, info_);
    const bool has_trns = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    const bool has_alpha = (type & PNG_COLOR_MASK_ALPHA) != 0;
    const bool grey = (type & PNG_COLOR_MASK_COLOR) == 0, palette = type == PNG_COLOR_TYPE_PALETTE;
    channels_ = channels != 0 ? channels
                : palette     ? (has_trns ? 4 : 3)
                              : png_get_channels(png_, info_);
    if (channels_ % 2 == 0) {
      if (has_trns) {
        png_set_tRNS_to_alpha(png_);
      } else if (!has_alpha) {
        png_set_add_alpha(png_, (1u << depth) - 1, PNG_FILLER_AFTER);
      }
    } else if (has_alpha || has_trns) {
      png_set_strip_alpha(png_);
    }
    if (depth > 8 && bits <= 8) png_set_strip_16(png_);
    widen_ = depth <= 8 && bits == 16;
    png_set_packing(png_);
    passes_ = png_set_interlace_handling(png_);
    if (bits > 8) png_set_swap(png_);
    if (palette) png_set_palette_to_rgb(png_);
    if (grey && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (channels_ < 3 && !grey) png_set_rgb_to_gray(png_, 1, 0.299, 0.587);
    if (channels_ >= 3 && grey) png_set_gray_to_rgb(png_);
  }

  Status Invalid(const char* what) const { return reports_.Failure(what + std::to_string(size_)); }

  PngReports reports_;
  std::string_view rest_;  // of the file
  const size_t size_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int64_t height_ = 0, width_ = 0;
  int channels_ = 0, passes_ = 1;
  bool widen_ = false;  // from 8 bits, which libpng gives, to 16
};

class PngEncoder {
 public:
  explicit PngEncoder(std::string* file) : file_(file) {}
  ~PngEncoder() { png_destroy_write_struct(&png_, &info_); }
  PngEncoder(const PngEncoder&) = delete;
  PngEncoder& operator=(const PngEncoder&) = delete;

  Status Encode(const KernelContext& c, const Tensor& image, int compression) {
    const Shape& shape = image.shape();
    const int bits = image.dtype() == DT_UINT16 ? 16 : 8;
    if (!reports_.Calls([&] { Begin(shape, bits, compression); }))
      return reports_.Failure("PNG encoding failed");
    if (png_ == nullptr || info_ == nullptr) return ResourceExhausted("no memory for libpng");
    const int64_t row_bytes = shape[1] * shape[2] * bits / 8;
    const auto* row = static_cast<const uint8_t*>(image.raw());
    for (int64_t y = 0; y < shape[0]; ++y, row += row_bytes) {
      if (c.cancelled()) return StepAborted();
      if (!reports_.Calls([&] { png_write_row(png_, row); }))
        return reports_.Failure("PNG encoding failed");
    }
    if (!reports_.Calls([&] { png_write_end(png_, nullptr); }))
      return reports_.Failure("PNG encoding failed");
    return Status();
  }

 private:
  static void Write(png_structp png, png_bytep bytes, size_t n) {
    static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<const char*>(bytes), n);
  }

  void Begin(const Shape& shape, int bits, int compression) {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &reports_, PngReports::OnError,
                                   PngReports::OnWarning);
    if (png_ == nullptr) return;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return;
    constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                              PNG_COLOR_TYPE_RGB_ALPHA};
    constexpr int kMostMemory = 9;  // zlib's MAX_MEM_LEVEL
    png_set_write_fn(png_, file_, Write, nullptr);
    png_set_compression_level(png_, compression);
    png_set_compression_mem_level(png_, kMostMemory);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(shape[1]),
                 static_cast<png_uint_32>(shape[0]), bits, kTypes[shape[2] - 1], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    if (bits > 8) png_set_swap(png_);
  }

  PngReports reports_;
  std::string* const file_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

Status DecodePngFile(KernelContext& c, std::string_view file, int channels) {
  const bool wide = c.output_dtype(0) != DT_UINT8;
  PngDecoder decoder(file);
  MG_RETURN_IF_ERROR(decoder.Begin(channels, wide ? 16 : 8));
  const Shape shape{decoder.height(), decoder.width(), decoder.channels()};
  MG_ASSIGN_OR_RETURN(Samples image, Samples::Make(c, shape, wide ? DT_UINT16 : DT_UINT8));
  MG_RETURN_IF_ERROR(
      decoder.Decode(c, image.bytes(), decoder.width() * decoder.channels() * (wide ? 2 : 1)));
  return image.Finish(c);
}

Status EncodePngFile(const KernelContext& c, const Tensor& image, int compression,
                     std::string* file) {
  PngEncoder encoder(file);
  return encoder.Encode(c, image, compression);
}

}  // namespace monograph::ops::image_codec
