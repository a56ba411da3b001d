// Resizes, crops and patches: functions, shape functions, gradients and definitions. The gradients
// of resized images and of crops are ops of their own; that of patches adds, for each pixel, what
// the patches say that it is in.
#include "ops/image/image.h"

#include <algorithm>
#include <array>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gather/gather.h"
#include "ops/image/definitions.h"
#include "ops/image/patches.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/transpose/transpose.h"

namespace monograph {
namespace {

Output Resize(const Scope& scope, const char* op, const Output& images, const Output& size,
              bool align_corners, bool half_pixel_centers) {
  return OpBuilder(scope, op)
      .Input(images)
      .Input(size)
      .Attr("align_corners", align_corners)
      .Attr("half_pixel_centers", half_pixel_centers)
      .BuildOutput();
}

}  // namespace

Output ResizeBilinear(const Scope& scope, const Output& images, const Output& size,
                      const ResizeOptions& options) {
  return Resize(scope, "ResizeBilinear", images, size, options.align_corners,
                options.half_pixel_centers);
}

Output ResizeNearestNeighbor(const Scope& scope, const Output& images, const Output& size,
                             const ResizeOptions& options) {
  return Resize(scope, "ResizeNearestNeighbor", images, size, options.align_corners,
                options.half_pixel_centers);
}

Output ResizeBicubic(const Scope& scope, const Output& images, const Output& size,
                     const ResizeOptions& options) {
  return Resize(scope, "ResizeBicubic", images, size, options.align_corners,
                options.half_pixel_centers);
}

Output ResizeArea(const Scope& scope, const Output& images, const Output& size,
                  bool align_corners) {
  return OpBuilder(scope, "ResizeArea")
      .Input(images)
      .Input(size)
      .Attr("align_corners", align_corners)
      .BuildOutput();
}

Output CropAndResize(const Scope& scope, const Output& image, const Output& boxes,
                     const Output& box_ind, const Output& crop_size, const std::string& method,
                     float extrapolation_value) {
  return OpBuilder(scope, "CropAndResize")
      .Input(image)
      .Input(boxes)
      .Input(box_ind)
      .Input(crop_size)
      .Attr("method", method)
      .Attr("extrapolation_value", extrapolation_value)
      .BuildOutput();
}

Output ExtractImagePatches(const Scope& scope, const Output& images,
                           const std::vector<int64_t>& ksizes, const std::vector<int64_t>& strides,
                           const std::vector<int64_t>& rates, const std::string& padding) {
  return OpBuilder(scope, "ExtractImagePatches")
      .Input(images)
      .Attr("ksizes", AttrValue(ksizes))
      .Attr("strides", AttrValue(strides))
      .Attr("rates", AttrValue(rates))
      .Attr("padding", AttrValue(padding))
      .BuildOutput();
}

namespace ops::image {
namespace {

// Input i, a height and a width: -1 for what is not known.
Result<std::array<int64_t, 2>> SizeOf(const ShapeContext& c, int i) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(i, 1));
  MG_RETURN_IF_ERROR(MergeDim(shape.dim(0), 2, "numbers of a size").status());
  std::array<int64_t, 2> size{-1, -1};
  const auto known = c.PartialInts(i);
  for (size_t k = 0; known && k < std::min<size_t>(2, known->size()); ++k) {
    if ((*known)[k] == kUnknownInt) continue;
    if ((*known)[k] < 0) {
      return InvalidArgument("a size must not be negative, got " + std::to_string((*known)[k]));
    }
    size[k] = (*known)[k];
  }
  return size;
}

Status ResizeShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape images, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const auto size, SizeOf(c, 1));
  c.set_output(0, PartialShape{images.dim(0), size[0], size[1], images.dim(3)});
  return Status();
}

// As input 1, the images that were resized.
Status ResizedGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape grads, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(PartialShape images, c.WithRank(1, 4));
  for (const int i : {0, 3}) {
    MG_ASSIGN_OR_RETURN(const int64_t dim, MergeDim(grads.dim(i), images.dim(i),
                                                    "images or channels of the two inputs"));
    images.set_dim(i, dim);
  }
  c.set_output(0, images);
  return Status();
}

// How many boxes inputs `boxes` and `boxes` + 1 have.
Result<int64_t> BoxesOf(const ShapeContext& c, int boxes) {
  MG_ASSIGN_OR_RETURN(const PartialShape corners, c.WithRank(boxes, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape indices, c.WithRank(boxes + 1, 1));
  MG_RETURN_IF_ERROR(MergeDim(corners.dim(1), 4, "numbers of a box").status());
  return MergeDim(corners.dim(0), indices.dim(0), "boxes and their images");
}

Status CropShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape images, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const int64_t boxes, BoxesOf(c, 1));
  MG_ASSIGN_OR_RETURN(const auto size, SizeOf(c, 3));
  c.set_output(0, PartialShape{boxes, size[0], size[1], images.dim(3)});
  return Status();
}

Status CropGradImageShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 4).status());
  MG_RETURN_IF_ERROR(BoxesOf(c, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(3, 1).status());
  MG_ASSIGN_OR_RETURN(const PartialShape size, c.InputAsShape(3));
  MG_ASSIGN_OR_RETURN(const PartialShape images,
                      PartialShape::Merge(size, PartialShape::UnknownOfRank(4)));
  c.set_output(0, images);
  return Status();
}

Status CropGradBoxesShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 4).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 4).status());
  MG_ASSIGN_OR_RETURN(const int64_t boxes, BoxesOf(c, 2));
  c.set_output(0, PartialShape{boxes, 4});
  return Status();
}

Status PatchesShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape images, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const Patches p, PatchesOf(c.attrs(), images.dim(1), images.dim(2)));
  int64_t channels = images.dim(3);
  if (channels >= 0) {
    MG_ASSIGN_OR_RETURN(channels, p.Channels(channels));
  }
  c.set_output(0, PartialShape{images.dim(0), p.rows.out, p.columns.out, channels});
  return Status();
}

bool IsOneOf(DType dtype, std::initializer_list<DType> types) {
  return std::find(types.begin(), types.end(), dtype) != types.end();
}

Status ResizedGradient(GradientContext& c, const char* op, std::initializer_list<DType> types) {
  if (!IsOneOf(c.input(0).dtype(), types)) return Status();
  c.set_grad(0, Resize(c.scope(), op, c.grad(0), c.input(0), c.attrs().Get<bool>("align_corners"),
                       c.attrs().Get<bool>("half_pixel_centers")));
  return Status();
}
Status BilinearGradient(GradientContext& c) {
  return ResizedGradient(c, "ResizeBilinearGrad", {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16});
}
Status BicubicGradient(GradientContext& c) {
  return ResizedGradient(c, "ResizeBicubicGrad", {DT_FLOAT, DT_DOUBLE});
}

Status NearestGradient(GradientContext& c) {
  const Scope& s = c.scope();
  if (!IsOneOf(c.input(0).dtype(), {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16})) return Status();
  c.set_grad(
      0,
      Resize(s, "ResizeNearestNeighborGrad", c.grad(0), Slice(s, ShapeOf(s, c.input(0)), {1}, {2}),
             c.attrs().Get<bool>("align_corners"), c.attrs().Get<bool>("half_pixel_centers")));
  return Status();
}

// Of the image where it is of floats, and of the boxes, whose only gradient is that of the bilinear
// method.
Status CropGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output &image = c.input(0), &boxes = c.input(1), &indices = c.input(2);
  if (IsOneOf(image.dtype(), {DT_FLOAT, DT_DOUBLE, DT_HALF})) {
    c.set_grad(0, OpBuilder(s, "CropAndResizeGradImage")
                      .Input(c.grad(0))
                      .Input(boxes)
                      .Input(indices)
                      .Input(ShapeOf(s, image))
                      .Attr("T", image.dtype())
                      .Attr("method", *c.attrs().Find("method"))
                      .BuildOutput());
  }
  c.set_grad(1, OpBuilder(s, "CropAndResizeGradBoxes")
                    .Input(c.grad(0))
                    .Input(image)
                    .Input(boxes)
                    .Input(indices)
                    .BuildOutput());
  return Status();
}

// The patches of an image of the pixels' numbers tell which pixel each element came from; 0: from
// none.
Status PatchesGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const auto number = [&s](int64_t n) { return Const<int64_t>(s, {n}); };
  const Output shape = ShapeOf(s, c.input(0), DT_INT64);
  const Output batch = Slice(s, shape, {0}, {1}), size = Slice(s, shape, {1}, {2}),
               channels = Slice(s, shape, {3}, {1});
  const Output rows = Slice(s, size, {0}, {1}), columns = Slice(s, size, {1}, {1});
  const Output pixels = Reshape(s, Mul(s, rows, columns), {});
  const Output one = Const(s, int64_t{1});
  const Output numbers = Reshape(s, Range(s, one, Add(s, pixels, one), one),
                                 Concat(s, {number(1), size, number(1)}, 0));
  const Output patches = OpBuilder(s, "ExtractImagePatches")
                             .Input(numbers)
                             .Attr("ksizes", *c.attrs().Find("ksizes"))
                             .Attr("strides", *c.attrs().Find("strides"))
                             .Attr("rates", *c.attrs().Find("rates"))
                             .Attr("padding", *c.attrs().Find("padding"))
                             .BuildOutput();
  const Output sources = Sub(s, Reshape(s, patches, {-1}), one);  // below 0 is dropped
  const Output grad = Transpose(
      s, Reshape(s, c.grad(0), Concat(s, {batch, ShapeOf(s, sources, DT_INT64), channels}, 0)),
      {1, 0, 2});
  const Output sums = UnsortedSegmentSum(s, grad, sources, pixels);
  c.set_grad(0,
             Transpose(s, Reshape(s, sums, Concat(s, {size, batch, channels}, 0)), {2, 0, 1, 3}));
  return Status();
}

void DefineResizes(OpRegistry* registry) {
  constexpr const char* kTypes =
      "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}";
  const auto add = [&](OpDef def) {
    registry->Add(def.Attr("align_corners: bool = false").Attr("half_pixel_centers: bool = false"));
  };
  add(OpDef("ResizeBilinear")
          .Input("images: T")
          .Input("size: int32")
          .Output("resized_images: float")
          .Attr(kTypes)
          .Shape(ResizeShape)
          .Gradient(BilinearGradient));
  add(OpDef("ResizeBilinearGrad")
          .Input("grads: float")
          .Input("original_image: T")
          .Output("output: T")
          .Attr("T: {float, bfloat16, half, double}")
          .Shape(ResizedGradShape)
          .NoGradient());
  add(OpDef("ResizeNearestNeighbor")
          .Input("images: T")
          .Input("size: int32")
          .Output("resized_images: T")
          .Attr(kTypes)
          .Shape(ResizeShape)
          .Gradient(NearestGradient));
  add(OpDef("ResizeNearestNeighborGrad")
          .Input("grads: T")
          .Input("size: int32")
          .Output("output: T")
          .Attr("T: {uint8, int8, int32, half, float, double, bfloat16}")
          .Shape(ResizeShape));
  add(OpDef("ResizeBicubic")
          .Input("images: T")
          .Input("size: int32")
          .Output("resized_images: float")
          .Attr(kTypes)
          .Shape(ResizeShape)
          .Gradient(BicubicGradient));
  add(OpDef("ResizeBicubicGrad")
          .Input("grads: float")
          .Input("original_image: T")
          .Output("output: T")
          .Attr("T: {float, double}")
          .Shape(ResizedGradShape));
  registry->Add(OpDef("ResizeArea")
                    .Input("images: T")
                    .Input("size: int32")
                    .Output("resized_images: float")
                    .Attr(kTypes)
                    .Attr("align_corners: bool = false")
                    .Shape(ResizeShape));
}

void DefineCrops(OpRegistry* registry) {
  constexpr const char* kTypes =
      "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}";
  registry->Add(OpDef("CropAndResize")
                    .Input("image: T")
                    .Input("boxes: float")
                    .Input("box_ind: int32")
                    .Input("crop_size: int32")
                    .Output("crops: float")
                    .Attr(kTypes)
                    .Attr("method: {'bilinear', 'nearest'} = 'bilinear'")
                    .Attr("extrapolation_value: float = 0")
                    .Shape(CropShape)
                    .Gradient(CropGradient));
  registry->Add(OpDef("CropAndResizeGradImage")
                    .Input("grads: float")
                    .Input("boxes: float")
                    .Input("box_ind: int32")
                    .Input("image_size: int32")
                    .Output("output: T")
                    .Attr("T: {float, half, double}")
                    .Attr("method: {'bilinear', 'nearest'} = 'bilinear'")
                    .Shape(CropGradImageShape));
  registry->Add(OpDef("CropAndResizeGradBoxes")
                    .Input("grads: float")
                    .Input("image: T")
                    .Input("boxes: float")
                    .Input("box_ind: int32")
                    .Output("output: float")
                    .Attr(kTypes)
                    .Attr("method: {'bilinear'} = 'bilinear'")
                    .Shape(CropGradBoxesShape));
}

}  // namespace

void Define(OpRegistry* registry) {
  DefineResizes(registry);
  DefineCrops(registry);
  DefineColours(registry);
  DefineBoxes(registry);
  registry->Add(OpDef("ExtractImagePatches")
                    .Input("images: T")
                    .Output("patches: T")
                    .Attr("ksizes: list(int) >= 4")
                    .Attr("strides: list(int) >= 4")
                    .Attr("rates: list(int) >= 4")
                    .Attr("T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, "
                          "uint16, uint32, uint64, complex64, complex128, bool}")
                    .Attr("padding: {'SAME', 'VALID'}")
                    .Shape(PatchesShape)
                    .Gradient(PatchesGradient));
}

}  // namespace ops::image
}  // namespace monograph
