// Functions, shape functions and definitions. Of an image only the channels are known before its
// file is read, and of a window of it the size; DecodeImage may find an animation, so that not even
// the rank is known unless expand_animations is false.
#include "ops/image_codec/image_codec.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {

Output DecodeJpeg(const Scope& scope, const Output& contents, int64_t channels) {
  return OpBuilder(scope, "DecodeJpeg").Input(contents).Attr("channels", channels).BuildOutput();
}

Output DecodePng(const Scope& scope, const Output& contents, int64_t channels, DType dtype) {
  return OpBuilder(scope, "DecodePng")
      .Input(contents)
      .Attr("channels", channels)
      .Attr("dtype", dtype)
      .BuildOutput();
}

Output DecodeBmp(const Scope& scope, const Output& contents, int64_t channels) {
  return OpBuilder(scope, "DecodeBmp").Input(contents).Attr("channels", channels).BuildOutput();
}

Output DecodeImage(const Scope& scope, const Output& contents, int64_t channels, DType dtype) {
  return OpBuilder(scope, "DecodeImage")
      .Input(contents)
      .Attr("channels", channels)
      .Attr("dtype", dtype)
      .Attr("expand_animations", false)
      .BuildOutput();
}

Output DecodeAndCropJpeg(const Scope& scope, const Output& contents, const Output& crop_window,
                         int64_t channels) {
  return OpBuilder(scope, "DecodeAndCropJpeg")
      .Input(contents)
      .Input(crop_window)
      .Attr("channels", channels)
      .BuildOutput();
}

Output ExtractJpegShape(const Scope& scope, const Output& contents) {
  return OpBuilder(scope, "ExtractJpegShape").Input(contents).BuildOutput();
}

Output EncodeJpeg(const Scope& scope, const Output& image, int64_t quality) {
  return OpBuilder(scope, "EncodeJpeg").Input(image).Attr("quality", quality).BuildOutput();
}

Output EncodePng(const Scope& scope, const Output& image, int64_t compression) {
  return OpBuilder(scope, "EncodePng").Input(image).Attr("compression", compression).BuildOutput();
}

namespace ops::image_codec {
namespace {

Status DecodeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  const int64_t channels = c.attr<int64_t>("channels");
  if (channels < 0) {
    return InvalidArgument("channels must be non-negative, got " + std::to_string(channels));
  }
  // An animation would have a dimension more.
  if (c.attrs().Find("expand_animations") != nullptr && c.attr<bool>("expand_animations")) {
    c.set_output(0, PartialShape());
    return Status();
  }
  PartialShape image{-1, -1, channels == 0 ? -1 : channels};
  if (c.num_inputs() == 2) {
    MG_ASSIGN_OR_RETURN(const PartialShape window, c.WithRank(1, 1));
    MG_RETURN_IF_ERROR(MergeDim(window.dim(0), 4, "numbers of crop_window").status());
    const auto known = c.InputAsInts(1);
    for (const int dim : {0, 1}) {
      if (known && (*known)[static_cast<size_t>(2 + dim)] >= 0)
        image.set_dim(dim, (*known)[static_cast<size_t>(2 + dim)]);
    }
  }
  c.set_output(0, image);
  return Status();
}

Status JpegShapeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  c.set_output(0, PartialShape{3});
  return Status();
}

Status EncodeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 3).status());
  return ScalarShape(c);
}

}  // namespace

void Define(OpRegistry* registry) {
  for (const bool crops : {false, true}) {
    OpDef def(crops ? "DecodeAndCropJpeg" : "DecodeJpeg");
    def.Input("contents: string");
    if (crops) def.Input("crop_window: int32");
    registry->Add(def.Output("image: uint8")
                      .Attr("channels: int = 0")
                      .Attr("ratio: int = 1")
                      .Attr("fancy_upscaling: bool = true")
                      .Attr("try_recover_truncated: bool = false")
                      .Attr("acceptable_fraction: float = 1.0")
                      .Attr("dct_method: string = ''")
                      .Shape(DecodeShape)
                      .NoGradient());
  }
  registry->Add(OpDef("DecodeBmp")
                    .Input("contents: string")
                    .Output("image: uint8")
                    .Attr("channels: int = 0")
                    .Shape(DecodeShape)
                    .NoGradient());
  registry->Add(OpDef("DecodeImage")
                    .Input("contents: string")
                    .Output("image: dtype")
                    .Attr("channels: int = 0")
                    .Attr("dtype: {uint8, uint16, float} = DT_UINT8")
                    .Attr("expand_animations: bool = true")
                    .Shape(DecodeShape)
                    .NoGradient());
  registry->Add(OpDef("ExtractJpegShape")
                    .Input("contents: string")
                    .Output("image_shape: output_type")
                    .Attr("output_type: {int32, int64} = DT_INT32")
                    .Shape(JpegShapeShape)
                    .NoGradient());
  registry->Add(OpDef("DecodePng")
                    .Input("contents: string")
                    .Output("image: dtype")
                    .Attr("channels: int = 0")
                    .Attr("dtype: {uint8, uint16} = DT_UINT8")
                    .Shape(DecodeShape)
                    .NoGradient());
  registry->Add(OpDef("EncodeJpeg")
                    .Input("image: uint8")
                    .Output("contents: string")
                    .Attr("format: {'', 'grayscale', 'rgb'} = ''")
                    .Attr("quality: int = 95")
                    .Attr("progressive: bool = false")
                    .Attr("optimize_size: bool = false")
                    .Attr("chroma_downsampling: bool = true")
                    .Attr("density_unit: {'in', 'cm'} = 'in'")
                    .Attr("x_density: int = 300")
                    .Attr("y_density: int = 300")
                    .Attr("xmp_metadata: string = ''")
                    .Shape(EncodeShape)
                    .NoGradient());
  registry->Add(OpDef("EncodePng")
                    .Input("image: T")
                    .Output("contents: string")
                    .Attr("compression: int = -1")
                    .Attr("T: {uint8, uint16} = DT_UINT8")
                    .Shape(EncodeShape)
                    .NoGradient());
}

}  // namespace ops::image_codec
}  // namespace monograph
