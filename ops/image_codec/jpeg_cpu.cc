// Decoding: the header, its checks, then row by row into the output; files of several scans hold
// all coefficients meanwhile, which count against the task's memory. A truncated file stops
// libjpeg ("suspends" it): rows so far may be enough. Of a window the rows before it are decoded
// and dropped, those behind it are not; so its pixels are those of the whole image. Encoding goes
// row by row, too.
//
// libjpeg reports errors by a jump over its own frames, to setjmp in Guard: what stands between
// the two has no destructors.
#include <cstdio>
#include <vector>
// libjpeg's headers come after cstdio.
#include <jerror.h>
#include <jpeglib.h>

#include "ops/cpu/pieces_cpu.h"
#include "ops/cpu/room_cpu.h"
#include "ops/image_codec/codecs_cpu.h"
#include "ops/image_codec/guard_cpu.h"

namespace monograph::ops::image_codec {
namespace {

constexpr int64_t kMostJpegPixels = int64_t{1} << 29;
constexpr size_t kMostOfMarker = 65533;  // bytes

// libjpeg's ways to report, of one image.
struct JpegReports {
  jpeg_error_mgr errors;  // the first member: libjpeg hands its address back
  jpeg_progress_mgr progress;
  Guard guard;
  const KernelContext* context;
  bool cancelled, no_memory;

  static_assert(sizeof(guard.message) >= JMSG_LENGTH_MAX);

  explicit JpegReports(const KernelContext& c) : context(&c), cancelled(false), no_memory(false) {
    jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr info) {
      auto* self = reinterpret_cast<JpegReports*>(info->err);
      self->errors.format_message(info, self->guard.message);
      self->no_memory = self->errors.msg_code == JERR_OUT_OF_MEMORY;
      std::longjmp(self->guard.jump, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    progress.progress_monitor = [](j_common_ptr info) {
      auto* self = reinterpret_cast<JpegReports*>(info->err);
      if (!self->context->cancelled()) return;
      self->cancelled = true;
      std::longjmp(self->guard.jump, 1);
    };
  }

  Status Failure(const std::string& what) const {
    if (cancelled) return StepAborted();
    if (no_memory) return ResourceExhausted(what + ": " + guard.message);
    return guard.Failure(what);
  }
};

// A file in memory. Once it is used up libjpeg stops, or is told that this is the end.
struct JpegSource {
  jpeg_source_mgr manager;  // the first member
  bool recover, ended;

  JpegSource(std::string_view file, bool recover_truncated)
      : manager{}, recover(recover_truncated), ended(false) {
    manager.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
    manager.bytes_in_buffer = file.size();
    manager.init_source = [](j_decompress_ptr) {};
    manager.term_source = [](j_decompress_ptr) {};
    manager.resync_to_restart = jpeg_resync_to_restart;
    manager.skip_input_data = [](j_decompress_ptr info, long bytes) {  // NOLINT(runtime/int)
      jpeg_source_mgr* source = info->src;
      const size_t skipped =
          bytes < 0 ? 0 : std::min(static_cast<size_t>(bytes), source->bytes_in_buffer);
      source->next_input_byte += skipped;
      source->bytes_in_buffer -= skipped;
    };
    manager.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      static constexpr JOCTET kEnd[] = {0xff, JPEG_EOI};
      auto* self = reinterpret_cast<JpegSource*>(info->src);
      if (!self->recover || self->ended) return FALSE;
      self->ended = true;
      self->manager.next_input_byte = kEnd;
      self->manager.bytes_in_buffer = sizeof(kEnd);
      return TRUE;
    };
  }
};

class JpegDecoder {
 public:
  JpegDecoder(const KernelContext& c, std::string_view file, bool recover)
      : reports_(c), source_(file, recover), size_(file.size()) {
    info_.err = &reports_.errors;
  }
  ~JpegDecoder() {
    if (made_) jpeg_destroy_decompress(&info_);
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Reads the header; the size of the whole image is known then.
  Status Begin(const JpegDecoding& how) {
    bool there = false;
    if (!reports_.guard.Calls([&] {
          jpeg_create_decompress(&info_);
          made_ = true;
          info_.src = &source_.manager;
          info_.progress = &reports_.progress;
          there = jpeg_read_header(&info_, TRUE) == JPEG_HEADER_OK;
        }) ||
        !there) {
      return Invalid();
    }
    if (info_.num_components < 1) return Invalid();
    channels_ = how.channels == 0 ? std::min(info_.num_components, 3) : how.channels;
    const bool four = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = channels_ == 1 ? JCS_GRAYSCALE : four ? JCS_CMYK : JCS_RGB;
    info_.do_fancy_upsampling = how.fancy_upscaling ? TRUE : FALSE;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(how.ratio);
    // The fast transform is TensorFlow's default, too.
    info_.dct_method = how.dct_method == "INTEGER_ACCURATE" ? JDCT_ISLOW : JDCT_IFAST;
    if (!reports_.guard.Calls([&] { jpeg_calc_output_dimensions(&info_); })) return Invalid();
    if (height() <= 0 || width() <= 0 || height() * width() >= kMostJpegPixels) {
      return InvalidArgument("JPEG size " + std::to_string(width()) + " by " +
                             std::to_string(height()) + " is too large or empty");
    }
    window_ = how.window.value_or(std::array<int64_t, 4>{0, 0, height(), width()});
    const auto [y, x, rows, columns] = window_;
    if (y < 0 || x < 0 || rows <= 0 || columns <= 0 || y + rows > height() ||
        x + columns > width()) {
      return InvalidArgument("Invalid crop window: y = " + std::to_string(y) +
                             ", x = " + std::to_string(x) + ", height = " + std::to_string(rows) +
                             ", width = " + std::to_string(columns) + " of an image of " +
                             std::to_string(height()) + " x " + std::to_string(width()));
    }
    return Status();
  }

  int64_t height() const { return info_.output_height; }
  int64_t width() const { return info_.output_width; }
  // As the file has them, where colours are not converted.
  int64_t file_channels() const { return info_.out_color_components; }
  Shape shape() const { return Shape{window_[2], window_[3], channels_}; }

  // The rows of the window, one after the other.
  Status Decode(const JpegDecoding& how, uint8_t* to) {
    MG_RETURN_IF_ERROR(room_.Hold(Coefficients(), "a JPEG image"));
    bool started = false;
    if (!reports_.guard.Calls([&] { started = jpeg_start_decompress(&info_) != FALSE; }) ||
        !started)
      return Invalid();
    const auto [y0, x0, rows, columns] = window_;
    const int64_t row_bytes = columns * channels_;
    const bool four = info_.out_color_space == JCS_CMYK, whole = columns == width();
    const int samples = four ? 4 : channels_;
    if (info_.output_components != samples) return Invalid();
    auto left = static_cast<JDIMENSION>(x0), wide = static_cast<JDIMENSION>(columns);
    // Begins at a block of pixels; width() is then that of what libjpeg gives.
    if (!whole && !reports_.guard.Calls([&] { jpeg_crop_scanline(&info_, &left, &wide); }))
      return Invalid();
    // A row that does not go to the image as it is.
    std::vector<uint8_t> other(four || !whole || y0 > 0 ? static_cast<size_t>(samples * width())
                                                        : 0);
    int64_t read = 0;
    for (int64_t y = 0; y < y0 + rows; ++y) {
      if (reports_.context->cancelled()) return StepAborted();
      uint8_t* const row = to + read * row_bytes;
      JSAMPROW into = four || !whole || y < y0 ? other.data() : row;
      unsigned count = 0;
      if (!reports_.guard.Calls([&] { count = jpeg_read_scanlines(&info_, &into, 1); }))
        return Invalid();
      if (count == 0) break;  // the file ends here
      if (y < y0) continue;
      const uint8_t* const from = other.data() + (x0 - left) * samples;
      if (four) FromInks(from, columns, row);
      if (!four && !whole) std::copy(from, from + row_bytes, row);
      ++read;
    }
    const float fraction = static_cast<float>(read) / static_cast<float>(rows);
    if (!(fraction >= std::min(1.0f, how.acceptable_fraction))) return Invalid();
    std::fill(to + read * row_bytes, to + rows * row_bytes, uint8_t{0});
    return Status();
  }

 private:
  Status Invalid() const {
    return reports_.Failure("Invalid JPEG data, data size " + std::to_string(size_));
  }

  // Bytes that libjpeg holds of a file whose image comes in several scans.
  size_t Coefficients() {
    if (jpeg_has_multiple_scans(&info_) == FALSE) return 0;
    size_t blocks = 0;
    for (int i = 0; i < info_.num_components; ++i) {
      const jpeg_component_info& part = info_.comp_info[i];
      blocks += size_t{part.width_in_blocks} * size_t{part.height_in_blocks};
    }
    return blocks * sizeof(JBLOCK);
  }

  // Cyan, magenta, yellow and black, inverted where Adobe wrote the file.
  void FromInks(const uint8_t* inks, int64_t columns, uint8_t* row) const {
    const bool inverted = info_.saw_Adobe_marker != FALSE;
    for (int64_t x = 0; x < columns; ++x, inks += 4) {
      for (int k = 0; k < 3; ++k) {
        *row++ = static_cast<uint8_t>(inverted ? inks[3] * inks[k] / 255
                                               : (255 - inks[3]) * (255 - inks[k]) / 255);
      }
    }
  }

  JpegReports reports_;
  JpegSource source_;
  jpeg_decompress_struct info_ = {};
  Room room_;
  const size_t size_;
  std::array<int64_t, 4> window_ = {};  // y, x, height, width
  int channels_ = 0;
  bool made_ = false;
};

// What libjpeg writes goes to a text.
struct JpegTarget {
  jpeg_destination_mgr manager;  // the first member
  std::string* file;
  JOCTET buffer[size_t{1} << 14];

  explicit JpegTarget(std::string* to) : manager{}, file(to) {
    manager.init_destination = [](j_compress_ptr info) {
      reinterpret_cast<JpegTarget*>(info->dest)->Empty();
    };
    manager.empty_output_buffer = [](j_compress_ptr info) -> boolean {
      auto* self = reinterpret_cast<JpegTarget*>(info->dest);
      self->manager.free_in_buffer = 0;  // the whole buffer counts
      self->Flush();
      return TRUE;
    };
    manager.term_destination = [](j_compress_ptr info) {
      reinterpret_cast<JpegTarget*>(info->dest)->Flush();
    };
  }

 private:
  void Empty() {
    manager.next_output_byte = buffer;
    manager.free_in_buffer = sizeof(buffer);
  }
  void Flush() {
    file->append(reinterpret_cast<const char*>(buffer), sizeof(buffer) - manager.free_in_buffer);
    Empty();
  }
};

class JpegEncoder {
 public:
  JpegEncoder(const KernelContext& c, std::string* file) : reports_(c), target_(file) {
    info_.err = &reports_.errors;
  }
  ~JpegEncoder() {
    if (made_) jpeg_destroy_compress(&info_);
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;

  Status Encode(const Tensor& image, const JpegEncoding& how) {
    if (image.shape()[0] > JPEG_MAX_DIMENSION || image.shape()[1] > JPEG_MAX_DIMENSION) {
      return InvalidArgument("JPEG images have at most " + std::to_string(JPEG_MAX_DIMENSION) +
                             " rows and columns, got shape " + image.shape().ToString());
    }
    std::string packet;
    if (!how.xmp_metadata.empty())
      packet = std::string("http://ns.adobe.com/xap/1.0/") + '\0' + how.xmp_metadata;
    if (packet.size() > kMostOfMarker) {
      return InvalidArgument("xmp_metadata has " + std::to_string(how.xmp_metadata.size()) +
                             " bytes; a JPEG file has room for 65504");
    }
    if (!reports_.guard.Calls([&] { Begin(image.shape(), how, packet); })) return Failed();
    const int64_t row_bytes = image.shape()[1] * image.shape()[2];
    for (int64_t y = 0; y < image.shape()[0]; ++y) {
      if (reports_.context->cancelled()) return StepAborted();
      // libjpeg only reads it.
      auto* row = const_cast<JSAMPLE*>(image.data<uint8_t>() + y * row_bytes);
      if (!reports_.guard.Calls([&] { (void)jpeg_write_scanlines(&info_, &row, 1); }))
        return Failed();
    }
    if (!reports_.guard.Calls([&] { jpeg_finish_compress(&info_); })) return Failed();
    return Status();
  }

 private:
  Status Failed() const { return reports_.Failure("JPEG encoding failed"); }

  void Begin(const Shape& shape, const JpegEncoding& how, const std::string& packet) {
    jpeg_create_compress(&info_);
    made_ = true;
    info_.dest = &target_.manager;
    info_.progress = &reports_.progress;
    info_.image_height = static_cast<JDIMENSION>(shape[0]);
    info_.image_width = static_cast<JDIMENSION>(shape[1]);
    info_.input_components = static_cast<int>(shape[2]);
    info_.in_color_space = shape[2] == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    if (how.optimize_size) info_.optimize_coding = TRUE;
    info_.density_unit = how.per_inch ? 1 : 2;
    info_.X_density = static_cast<UINT16>(how.x_density);
    info_.Y_density = static_cast<UINT16>(how.y_density);
    jpeg_set_quality(&info_, how.quality, TRUE);
    if (how.progressive) jpeg_simple_progression(&info_);
    for (int i = 0; !how.chroma_downsampling && i < info_.num_components; ++i)
      info_.comp_info[i].h_samp_factor = info_.comp_info[i].v_samp_factor = 1;
    jpeg_start_compress(&info_, TRUE);
    if (!packet.empty()) {
      jpeg_write_marker(&info_, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(packet.data()),
                        static_cast<unsigned>(packet.size()));
    }
  }

  JpegReports reports_;
  JpegTarget target_;
  jpeg_compress_struct info_ = {};
  bool made_ = false;
};

}  // namespace

Status DecodeJpegFile(KernelContext& c, std::string_view file, const JpegDecoding& how) {
  if (how.channels != 0 && how.channels != 1 && how.channels != 3) {
    return InvalidArgument("channels must be 0, 1, or 3 for JPEG, got " +
                           std::to_string(how.channels));
  }
  JpegDecoder decoder(c, file, how.recover_truncated);
  MG_RETURN_IF_ERROR(decoder.Begin(how));
  MG_ASSIGN_OR_RETURN(Samples image, Samples::Make(c, decoder.shape(), DT_UINT8));
  MG_RETURN_IF_ERROR(decoder.Decode(how, image.bytes()));
  return image.Finish(c);
}

Result<std::array<int64_t, 3>> JpegShape(const KernelContext& c, std::string_view file) {
  JpegDecoder decoder(c, file, false);
  MG_RETURN_IF_ERROR(decoder.Begin({}));
  return std::array{decoder.height(), decoder.width(), decoder.file_channels()};
}

Status EncodeJpegFile(const KernelContext& c, const Tensor& image, const JpegEncoding& how,
                      std::string* file) {
  JpegEncoder encoder(c, file);
  return encoder.Encode(image, how);
}

}  // namespace monograph::ops::image_codec
