// JPEG by libjpeg, PNG by libpng, and BMP: the libraries' errors, which jump, become
// InvalidArgument, and what a header says is looked at before memory is taken. Each row looks at
// cancellation; what is left of an aborted step's image is not decoded.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "executor/kernel.h"
#include "ops/cpu/pieces_cpu.h"

namespace monograph::ops::image_codec {

// What a decoder writes: output 0, or where that is of another type, memory that Finish converts:
// to floats in [0, 1]; from uint8 to uint16 times 256.
class Samples {
 public:
  // Of type `dtype`, uint8 or uint16.
  static Result<Samples> Make(KernelContext& c, const Shape& shape, DType dtype) {
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    if (out->dtype() == dtype) return Samples(*out, *out);
    MG_ASSIGN_OR_RETURN(Tensor made, c.AllocateTemp(dtype, shape));
    return Samples(*out, std::move(made));
  }

  uint8_t* bytes() { return static_cast<uint8_t*>(made_.raw()); }
  Status Finish(const KernelContext& c);

 private:
  Samples(Tensor out, Tensor made) : out_(std::move(out)), made_(std::move(made)) {}

  Tensor out_, made_;
};

struct JpegDecoding {
  int channels = 0;  // 0: as the file
  int ratio = 1;     // downscales by 1, 2, 4 or 8
  bool fancy_upscaling = true;
  bool recover_truncated = false;
  float acceptable_fraction = 1;  // of the rows; the others are black
  std::string dct_method = {};
  std::optional<std::array<int64_t, 4>> window = {};  // y, x, height, width: the rest is left out
};
// Into output 0, as the next ones.
Status DecodeJpegFile(KernelContext& c, std::string_view file, const JpegDecoding& how);
// [height, width, channels], as its header says.
Result<std::array<int64_t, 3>> JpegShape(const KernelContext& c, std::string_view file);

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

Status DecodePngFile(KernelContext& c, std::string_view file, int channels);
// image: uint8 or uint16, [height, width, 1 to 4], of at least one pixel.
Status EncodePngFile(const KernelContext& c, const Tensor& image, int compression,
                     std::string* file);

Status DecodeBmpFile(KernelContext& c, std::string_view file, int channels);

}  // namespace monograph::ops::image_codec
