// The kernels check attributes and inputs, once for each node what can be told then, and leave the
// files to jpeg_cpu.cc, png_cpu.cc and bmp_cpu.cc. Which of them reads a file is told by its first
// bytes, not by the op's name, as in TensorFlow, but for BMP files, for which DecodeBmp and
// DecodeImage are.
#include <algorithm>
#include <limits>

#include "executor/kernel.h"
#include "ops/image_codec/codecs_cpu.h"

namespace monograph::ops::image_codec {
namespace {

constexpr std::string_view kJpegBegin = "\xff\xd8\xff", kPngBegin = "\x89PNG\r\n\x1a\n";

template <typename From, typename To>
void Convert(const KernelContext& c, const Tensor& from, Tensor* to) {
  constexpr auto kMost = static_cast<float>(std::numeric_limits<From>::max());
  const From* const samples = from.data<From>();
  To* const out = to->data<To>();
  InPieces(c, from.elements(), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (std::is_same_v<To, float>) {
        out[i] = static_cast<float>(samples[i]) * (1.0f / kMost);
      } else {
        out[i] = static_cast<To>(samples[i] * 256);
      }
    }
  });
}

Result<std::string_view> FileOf(const Tensor& contents) {
  if (contents.shape().rank() != 0) {
    return InvalidArgument("contents must be scalar, got shape " + contents.shape().ToString());
  }
  return std::string_view(contents.strings()[0]);
}

// Decodes files into images: which formats, by the op.
class DecodeKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    const int64_t channels = k.attr<int64_t>("channels");
    if (channels != 0 && channels != 1 && channels != 3 && channels != 4) {
      return InvalidArgument("channels must be 0, 1, 3, or 4, got " + std::to_string(channels));
    }
    JpegDecoding jpeg{.channels = static_cast<int>(channels)};
    const std::string_view op = k.op();
    if (op == "DecodeJpeg" || op == "DecodeAndCropJpeg") {
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
    return std::unique_ptr<Kernel>(new DecodeKernel(op, std::move(jpeg)));
  }

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::string_view file, FileOf(c.input(0)));
    const auto refuse = [this](const char* format) {
      return InvalidArgument("Trying to decode " + std::string(format) +
                             " format using a wrong op: " + op_);
    };
    const bool crops = op_ == "DecodeAndCropJpeg", bmp_only = op_ == "DecodeBmp";
    if (file.starts_with(kJpegBegin)) {
      if (bmp_only) return refuse("JPEG");
      if (!crops) return DecodeJpegFile(c, file, jpeg_);
      const Tensor& window = c.input(1);
      if (window.shape().rank() != 1 || window.elements() != 4) {
        return InvalidArgument("crop_window must have four elements, got shape " +
                               window.shape().ToString());
      }
      JpegDecoding cropped = jpeg_;
      std::copy_n(window.data<int32_t>(), 4, cropped.window.emplace().begin());
      return DecodeJpegFile(c, file, cropped);
    }
    if (file.starts_with(kPngBegin)) {
      return crops || bmp_only ? refuse("PNG") : DecodePngFile(c, file, jpeg_.channels);
    }
    if (file.starts_with("BM")) {
      return bmp_only || op_ == "DecodeImage" ? DecodeBmpFile(c, file, jpeg_.channels)
                                              : refuse("BMP");
    }
    if (file.starts_with("GIF8")) {
      return Unimplemented("GIF files are not read here; give a JPEG, PNG or BMP file");
    }
    return InvalidArgument("Unknown image file format. One of JPEG, PNG, BMP required.");
  }

 private:
  DecodeKernel(std::string_view op, JpegDecoding jpeg) : op_(op), jpeg_(std::move(jpeg)) {}

  const std::string op_;
  const JpegDecoding jpeg_;
};

class JpegShapeKernel : public Kernel {
 public:
  explicit JpegShapeKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const std::string_view file, FileOf(c.input(0)));
    MG_ASSIGN_OR_RETURN(const auto shape, JpegShape(c, file));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{3}));
    if (out->dtype() == DT_INT64) {
      std::copy(shape.begin(), shape.end(), out->data<int64_t>());
    } else {
      std::transform(shape.begin(), shape.end(), out->data<int32_t>(),
                     [](int64_t dim) { return static_cast<int32_t>(dim); });
    }
    return Status();
  }
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

Status Samples::Finish(const KernelContext& c) {
  if (out_.dtype() == made_.dtype()) return Status();
  if (made_.dtype() == DT_UINT16) {
    Convert<uint16_t, float>(c, made_, &out_);
  } else if (out_.dtype() == DT_FLOAT) {
    Convert<uint8_t, float>(c, made_, &out_);
  } else {
    Convert<uint8_t, uint16_t>(c, made_, &out_);
  }
  return Status();
}

void RegisterCpu(KernelRegistry* registry) {
  for (const char* op : {"DecodeJpeg", "DecodeAndCropJpeg", "DecodeBmp"})
    registry->Add<DecodeKernel>({.op = op});
  for (const DType dtype : {DT_UINT8, DT_UINT16, DT_FLOAT})
    registry->Add<DecodeKernel>({.op = "DecodeImage", .types = {{"dtype", dtype}}});
  for (const DType dtype : {DT_INT32, DT_INT64})
    registry->Add<JpegShapeKernel>({.op = "ExtractJpegShape", .types = {{"output_type", dtype}}});
  registry->Add<EncodeJpegKernel>({.op = "EncodeJpeg"});
  for (const DType dtype : {DT_UINT8, DT_UINT16}) {
    registry->Add<DecodeKernel>({.op = "DecodePng", .types = {{"dtype", dtype}}});
    registry->Add<EncodePngKernel>({.op = "EncodePng", .types = {{"T", dtype}}});
  }
}

}  // namespace monograph::ops::image_codec
