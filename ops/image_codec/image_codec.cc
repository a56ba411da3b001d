#include "ops/image_codec/image_codec.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

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
  c.set_output(0, PartialShape{-1, -1, channels == 0 ? -1 : channels});
  return Status();
}

Status EncodeShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 3).status());
  return ScalarShape(c);
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("DecodeJpeg")
                    .Input("contents: string")
                    .Output("image: uint8")
                    .Attr("channels: int = 0")
                    .Attr("ratio: int = 1")
                    .Attr("fancy_upscaling: bool = true")
                    .Attr("try_recover_truncated: bool = false")
                    .Attr("acceptable_fraction: float = 1.0")
                    .Attr("dct_method: string = ''")
                    .Shape(DecodeShape)
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
