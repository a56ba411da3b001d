// Boxes of images, to draw, to choose from and to crop by: functions, shape functions and
// definitions. The forms of NonMaxSuppression differ in what is an input, and share a shape
// function that tells them by their numbers of inputs and outputs.
#include <string>

#include "graph/shape_inference.h"
#include "ops/dims.h"
#include "ops/image/definitions.h"
#include "ops/image/image.h"

namespace monograph {

Output DrawBoundingBoxes(const Scope& scope, const Output& images, const Output& boxes,
                         const Output& colors) {
  return OpBuilder(scope, "DrawBoundingBoxesV2")
      .Input(images)
      .Input(boxes)
      .Input(colors)
      .BuildOutput();
}

Output NonMaxSuppression(const Scope& scope, const Output& boxes, const Output& scores,
                         const Output& max_output_size, const Output& iou_threshold,
                         const Output& score_threshold) {
  return OpBuilder(scope, "NonMaxSuppressionV3")
      .Input(boxes)
      .Input(scores)
      .Input(max_output_size)
      .Input(iou_threshold)
      .Input(score_threshold)
      .BuildOutput();
}

RandomBox SampleDistortedBoundingBox(const Scope& scope, const Output& image_size,
                                     const Output& bounding_boxes, const Output& min_object_covered,
                                     const RandomBoxOptions& options) {
  const auto sample =
      OpBuilder(scope, "SampleDistortedBoundingBoxV2")
          .Input(image_size)
          .Input(bounding_boxes)
          .Input(min_object_covered)
          .Attr("seed", scope.seed())
          .Attr("seed2", options.seed)
          .Attr("aspect_ratio_range", AttrValue(options.aspect_ratio_range))
          .Attr("area_range", AttrValue(options.area_range))
          .Attr("max_attempts", options.max_attempts)
          .Attr("use_image_if_no_bounding_boxes", options.use_image_if_no_bounding_boxes)
          .Build();
  return {sample.output(0), sample.output(1), sample.output(2)};
}

namespace ops::image {
namespace {

Status DrawShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 4).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 3).status());
  c.set_output(0, c.input(0));
  return Status();
}

Status SuppressShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(const PartialShape scores, c.WithRank(1, 1));
  MG_RETURN_IF_ERROR(MergeDim(boxes.dim(0), scores.dim(0), "boxes and scores").status());
  MG_RETURN_IF_ERROR(MergeDim(boxes.dim(1), 4, "numbers of a box").status());
  for (int i = 2; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  int64_t count = -1;
  if (c.attrs().Find("pad_to_max_output_size") != nullptr &&
      c.attr<bool>("pad_to_max_output_size")) {
    const auto most = c.InputAsInts(2);
    if (most && (*most)[0] < 0) {
      return InvalidArgument("output size must be non-negative, got " + std::to_string((*most)[0]));
    }
    if (most) count = (*most)[0];
  }
  c.set_output(0, PartialShape{count});
  if (c.num_outputs() == 3) c.set_output(1, PartialShape{count});
  if (c.num_outputs() > 1) c.set_output(c.num_outputs() - 1, PartialShape(Shape()));
  return Status();
}

Status RandomBoxShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape size, c.WithRank(0, 1));
  MG_RETURN_IF_ERROR(MergeDim(size.dim(0), 3, "numbers of image_size").status());
  MG_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(1, 3));
  MG_RETURN_IF_ERROR(MergeDim(boxes.dim(2), 4, "numbers of a box").status());
  if (c.num_inputs() == 3) MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  c.set_output(0, PartialShape{3});
  c.set_output(1, PartialShape{3});
  c.set_output(2, PartialShape{1, 1, 4});
  return Status();
}

// Boxes, scores, and how many at most.
OpDef Suppress(const char* op, const char* type) {
  const std::string of_type = std::string(": ") + type;
  return OpDef(op)
      .Input("boxes" + of_type)
      .Input("scores" + of_type)
      .Input("max_output_size: int32")
      .Output("selected_indices: int32")
      .Shape(SuppressShape);
}

void DefineSuppressions(OpRegistry* registry) {
  constexpr const char* kType = "T: {half, float} = DT_FLOAT";
  registry->Add(
      Suppress("NonMaxSuppression", "float").Attr("iou_threshold: float = 0.5").NoGradient());
  for (const int version : {2, 3, 4}) {
    OpDef def = Suppress(("NonMaxSuppressionV" + std::to_string(version)).c_str(), "T");
    def.Input("iou_threshold: T_threshold");
    if (version > 2) def.Input("score_threshold: T_threshold");
    if (version > 3) def.Output("valid_outputs: int32");
    def.Attr(kType).Attr("T_threshold: {half, float} = DT_FLOAT");
    if (version > 3) def.Attr("pad_to_max_output_size: bool = false");
    registry->Add(def.NoGradient());
  }
  registry->Add(Suppress("NonMaxSuppressionV5", "T")
                    .Input("iou_threshold: T")
                    .Input("score_threshold: T")
                    .Input("soft_nms_sigma: T")
                    .Output("selected_scores: T")
                    .Output("valid_outputs: int32")
                    .Attr(kType)
                    .Attr("pad_to_max_output_size: bool = false"));
}

void DefineRandomBox(OpRegistry* registry, bool covered_is_input) {
  OpDef def(covered_is_input ? "SampleDistortedBoundingBoxV2" : "SampleDistortedBoundingBox");
  def.Input("image_size: T").Input("bounding_boxes: float");
  if (covered_is_input) def.Input("min_object_covered: float");
  def.Output("begin: T").Output("size: T").Output("bboxes: float");
  def.Attr("T: {uint8, int8, int16, int32, int64}").Attr("seed: int = 0").Attr("seed2: int = 0");
  if (!covered_is_input) def.Attr("min_object_covered: float = 0.1");
  registry->Add(def.Attr("aspect_ratio_range: list(float) = [0.75, 1.33]")
                    .Attr("area_range: list(float) = [0.05, 1]")
                    .Attr("max_attempts: int = 100")
                    .Attr("use_image_if_no_bounding_boxes: bool = false")
                    .Stateful()
                    .Shape(RandomBoxShape)
                    .NoGradient());
}

}  // namespace

void DefineBoxes(OpRegistry* registry) {
  const auto draw = [](const char* op) {
    return OpDef(op).Input("images: T").Input("boxes: float");
  };
  constexpr const char* kType = "T: {float, half} = DT_FLOAT";
  registry->Add(
      draw("DrawBoundingBoxes").Output("output: T").Attr(kType).Shape(DrawShape).NoGradient());
  registry->Add(draw("DrawBoundingBoxesV2")
                    .Input("colors: float")
                    .Output("output: T")
                    .Attr(kType)
                    .Shape(DrawShape));
  DefineSuppressions(registry);
  DefineRandomBox(registry, false);
  DefineRandomBox(registry, true);
}

}  // namespace ops::image
}  // namespace monograph
