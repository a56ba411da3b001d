// The kernels check attributes and inputs, once for each node what can be told then, and leave the
// files to jpeg_cpu.cc and png_cpu.cc. Which library reads a file is told by its first bytes, not
// by the op's name, as in TensorFlow.
#include <limits>

#include "executor/kernel.h"
#include "ops/image_codec/codecs_cpu.h"

namespace monograph::ops::image_codec {
namespace {

// DecodeJpeg and DecodePng: either reads both formats.
class DecodeKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const int64_t channels = k.attr<int64_t>("channels");
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4) {
      return InvalidArgument("channels must be 0, 1, 3, or 4, got " + std::to_string(channels));
    }
    JpegDecoding jpeg{.channels = static_cast<int>(channels)};
    if (k.op() == "DecodeJpeg") {
      const int64_t ratio = k.attr<int64_t>("ratio");
      if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8) {
        return InvalidArgument("ratio must be 1, 2, 4, or 8, got " + std::to_string(ratio));
      }
      jpeg.ratio = static_cast<int>(ratio);
      jpeg.fancy_upscaling = k.attr<bool>("fancy_upscaling");
      jpeg.recover_truncated = k.attr<bool>("try_recover_truncated");
      jpeg.acceptable_fraction = k.attr<float>("acceptable_fraction");
      jpeg.dct_method = k.attr<std::string>("dct_method");
      if (!jpeg.dct_method.empty() && jpeg.dct_method != "INTEGER_FAST" &&
          jpeg.dct_method != "INTEGER_ACCURATE") {
        return InvalidArgument(
            "dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}, got '" +
            jpeg.dct_method + "'");
      }
    }
    return std::unique_ptr<Kernel>(new DecodeKernel(std::move(jpeg)));
  }

  Status Compute(KernelContext& c) override {
    const Tensor& contents = c.input(0);
    if (contents.shape().rank() != 0) {
      return InvalidArgument("contents must be scalar, got shape " + contents.shape().ToString());
    }
    const std::string_view file = contents.strings()[0];
    if (file.starts_with("\xff\xd8\xff")) {
      if (c.output_dtype(0) != DT_UINT8) {
        return InvalidArgument("a JPEG file has 8 bits for a channel; dtype must be uint8");
      }
      return DecodeJpegFile(c, file, jpeg_);
    }
    if (file.starts_with("\x89PNG\r\n\x1a\n")) return DecodePngFile(c, file, jpeg_.channels);
    if (file.starts_with("GIF8") || file.starts_with("BM")) {
      return Unimplemented("GIF and BMP files are not read here; give a JPEG or PNG file");
    }
    return InvalidArgument("Unknown image file format. One of JPEG, PNG required.");
  }

 private:
  explicit DecodeKernel(JpegDecoding jpeg) : jpeg_(std::move(jpeg)) {}

  const JpegDecoding jpeg_;
};

// An image that can be written.
Status CheckImage(const Shape& shape) {
  if (shape.rank() != 3) {
    return InvalidArgument("image must be 3-dimensional, got shape " + shape.ToString());
  }
  if (shape.elements() >= std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("Cannot encode images with >= max int32 elements, got shape " +
                           shape.ToString());
  }
  if (shape.elements() == 0) {
    return InvalidArgument("an image without pixels cannot be encoded: its shape is " +
                           shape.ToString());
  }
  return Status();
}

class EncodeJpegKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const int64_t quality = k.attr<int64_t>("quality");
    if (quality < 0 || quality > 100) {
      return InvalidArgument("quality must be in [0,100], got " + std::to_string(quality));
    }
    JpegEncoding jpeg{.quality = static_cast<int>(quality)};
    for (const bool x : {true, false}) {
      const char* const name = x ? "x_density" : "y_density";
      const int64_t density = k.attr<int64_t>(name);
      if (density < 0 || density > std::numeric_limits<uint16_t>::max()) {
        return InvalidArgument(std::string(name) + " must be in [0,65535], got " +
                               std::to_string(density));
      }
      (x ? jpeg.x_density : jpeg.y_density) = static_cast<int>(density);
    }
    jpeg.progressive = k.attr<bool>("progressive");
    jpeg.optimize_size = k.attr<bool>("optimize_size");
    jpeg.chroma_downsampling = k.attr<bool>("chroma_downsampling");
    jpeg.per_inch = k.attr<std::string>("density_unit") == "in";
    jpeg.xmp_metadata = k.attr<std::string>("xmp_metadata");
    const std::string& format = k.attr<std::string>("format");
    return std::unique_ptr<Kernel>(new EncodeJpegKernel(std::move(jpeg), format == "grayscale" ? 1
                                                                         : format == "rgb"     ? 3
                                                                                           : 0));
  }

  Status Compute(KernelContext& c) override {
    const Shape& shape = c.input(0).shape();
    MG_RETURN_IF_ERROR(CheckImage(shape));
    const int64_t channels = shape[2];
    if (channels_ == 0 ? channels != 1 && channels != 3 : channels != channels_) {
      return InvalidArgument((channels_ == 0   ? "image must have 1 or 3 channels"
                              : channels_ == 1 ? "format 'grayscale' expects 1 channel"
                                               : "format 'rgb' expects 3 channels") +
                             std::string(", got shape ") + shape.ToString());
    }
    MG_ASSIGN_OR_RETURN(Tensor * file, c.AllocateOutput(0, Shape()));
    return EncodeJpegFile(c, c.input(0), jpeg_, file->strings());
  }

 private:
  EncodeJpegKernel(JpegEncoding jpeg, int64_t channels)
      : jpeg_(std::move(jpeg)), channels_(channels) {}

  const JpegEncoding jpeg_;
  const int64_t channels_;  // 0: as the image
};

class EncodePngKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const int64_t compression = k.attr<int64_t>("compression");
    if (compression < -1 || compression > 9) {
      return InvalidArgument("compression should be in [-1,9], got " + std::to_string(compression));
    }
    return std::unique_ptr<Kernel>(new EncodePngKernel(static_cast<int>(compression)));
  }

  Status Compute(KernelContext& c) override {
    const Shape& shape = c.input(0).shape();
    MG_RETURN_IF_ERROR(CheckImage(shape));
    if (shape[2] > 4) {
      return InvalidArgument("image must have 1, 2, 3, or 4 channels, got " +
                             std::to_string(shape[2]));
    }
    MG_ASSIGN_OR_RETURN(Tensor * file, c.AllocateOutput(0, Shape()));
    return EncodePngFile(c, c.input(0), compression_, file->strings());
  }

 private:
  explicit EncodePngKernel(int compression) : compression_(compression) {}

  const int compression_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  registry->Add<DecodeKernel>({.op = "DecodeJpeg"});
  registry->Add<EncodeJpegKernel>({.op = "EncodeJpeg"});
  for (const DType dtype : {DT_UINT8, DT_UINT16}) {
    registry->Add<DecodeKernel>({.op = "DecodePng", .types = {{"dtype", dtype}}});
    registry->Add<EncodePngKernel>({.op = "EncodePng", .types = {{"T", dtype}}});
  }
}

}  // namespace monograph::ops::image_codec
