// Functions, shape functions, gradients and definitions. All ops ask PlaceWindows (ops/window.h)
// where the windows lie, so that shape functions and kernels cannot disagree. Pooling has gradients
// of any order: averaging is linear, and MaxPoolGrad and MaxPoolGradGrad are each other's gradient.
#include "ops/pool/pool.h"

#include <optional>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"
#include "ops/pool/fractional_pool.h"
#include "ops/types.h"
#include "ops/window.h"

namespace monograph {
namespace {

Output Build(const Scope& scope, const char* op, std::initializer_list<Output> inputs,
             const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
             const std::string& padding, const std::string& data_format) {
  OpBuilder builder(scope, op);
  for (const Output& input : inputs) builder.Input(input);
  return builder.Attr("ksize", AttrValue(ksize))
      .Attr("strides", AttrValue(strides))
      .Attr("padding", AttrValue(padding))
      .Attr("data_format", AttrValue(data_format))
      .BuildOutput();
}

}  // namespace

Output MaxPool(const Scope& scope, Output input, const std::vector<int64_t>& ksize,
               const std::vector<int64_t>& strides, const std::string& padding,
               const std::string& data_format) {
  return Build(scope, "MaxPool", {input}, ksize, strides, padding, data_format);
}

Output AvgPool(const Scope& scope, Output value, const std::vector<int64_t>& ksize,
               const std::vector<int64_t>& strides, const std::string& padding,
               const std::string& data_format) {
  return Build(scope, "AvgPool", {value}, ksize, strides, padding, data_format);
}

Output MaxPoolGrad(const Scope& scope, Output orig_input, Output orig_output, Output grad,
                   const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
                   const std::string& padding, const std::string& data_format) {
  return Build(scope, "MaxPoolGrad", {orig_input, orig_output, grad}, ksize, strides, padding,
               data_format);
}

Output MaxPoolGradGrad(const Scope& scope, Output orig_input, Output orig_output, Output grad,
                       const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
                       const std::string& padding, const std::string& data_format) {
  return Build(scope, "MaxPoolGradGrad", {orig_input, orig_output, grad}, ksize, strides, padding,
               data_format);
}

Output AvgPoolGrad(const Scope& scope, Output orig_input_shape, Output grad,
                   const std::vector<int64_t>& ksize, const std::vector<int64_t>& strides,
                   const std::string& padding, const std::string& data_format) {
  return Build(scope, "AvgPoolGrad", {orig_input_shape, grad}, ksize, strides, padding,
               data_format);
}

Output MaxPool3D(const Scope& scope, Output input, const std::vector<int64_t>& ksize,
                 const std::vector<int64_t>& strides, const std::string& padding,
                 const std::string& data_format) {
  return Build(scope, "MaxPool3D", {input}, ksize, strides, padding, data_format);
}

Output AvgPool3D(const Scope& scope, Output input, const std::vector<int64_t>& ksize,
                 const std::vector<int64_t>& strides, const std::string& padding,
                 const std::string& data_format) {
  return Build(scope, "AvgPool3D", {input}, ksize, strides, padding, data_format);
}

MaxPoolWithArgmaxOutputs MaxPoolWithArgmax(const Scope& scope, Output input,
                                           const std::vector<int64_t>& ksize,
                                           const std::vector<int64_t>& strides,
                                           const std::string& padding) {
  const Operation op = OpBuilder(scope, "MaxPoolWithArgmax")
                           .Input(input)
                           .Attr("ksize", AttrValue(ksize))
                           .Attr("strides", AttrValue(strides))
                           .Attr("padding", AttrValue(padding))
                           .Build();
  return {op.output(0), op.output(1)};
}

namespace ops::pool {
namespace {

// The attributes of a node whose windows come as inputs `at` and `at` + 1, as those of one that has
// them as attributes; no value if they are not constant.
std::optional<Attrs> ConstantWindows(ShapeContext& c, int at) {
  const auto ksize = c.InputAsInts(at), strides = c.InputAsInts(at + 1);
  if (!ksize || !strides) return std::nullopt;
  Attrs attrs = c.attrs();
  attrs.Set("ksize", *ksize);
  attrs.Set("strides", *strides);
  return attrs;
}

Result<PartialShape> PooledBy(const Attrs& attrs, const PartialShape& input) {
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(attrs.GetOr<std::string>("data_format", "NHWC")));
  int64_t kh = 1, kw = 1;
  MG_RETURN_IF_ERROR(ImageAttr(attrs, "ksize", format, &kh, &kw));
  Window rows, columns;
  MG_RETURN_IF_ERROR(PlaceWindows(attrs, format, input.dim(format.h), input.dim(format.w), kh, kw,
                                  &rows, &columns));
  PartialShape out = input;
  out.set_dim(format.h, rows.out);
  out.set_dim(format.w, columns.out);
  return out;
}

Result<PartialShape> Pooled(ShapeContext& c, const PartialShape& input) {
  return PooledBy(c.attrs(), input);
}

// Shape of MaxPoolV2 and its kin, whose ksize and strides are inputs `at` and `at` + 1.
Result<PartialShape> PooledByInputs(ShapeContext& c, const PartialShape& input, int at) {
  for (int i : {at, at + 1}) MG_RETURN_IF_ERROR(c.WithRank(i, 1).status());
  if (const auto attrs = ConstantWindows(c, at)) return PooledBy(*attrs, input);
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(c.attr<std::string>("data_format")));
  PartialShape out = input;
  out.set_dim(format.h, -1);
  out.set_dim(format.w, -1);
  return out;
}

Status PoolV2Shape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape out, PooledByInputs(c, input, 1));
  c.set_output(0, out);
  return Status();
}

Status MaxPoolGradV2Shape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledByInputs(c, input, 3));
  for (int i : {1, 2}) MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(i)).status());
  c.set_output(0, input);
  return Status();
}

Status MaxPoolGradGradV2Shape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledByInputs(c, input, 3));
  MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(1)).status());
  MG_RETURN_IF_ERROR(PartialShape::Merge(input, c.input(2)).status());
  c.set_output(0, pooled);
  return Status();
}

// MaxPoolWithArgmax: both outputs.
Status ArgmaxShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape out, PooledBy(c.attrs(), input));
  for (int i : {0, 1}) c.set_output(i, out);
  return Status();
}

// input, grad, argmax -> as input
Status ArgmaxGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledBy(c.attrs(), input));
  for (int i : {1, 2}) MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(i)).status());
  c.set_output(0, input);
  return Status();
}
Status ArgmaxGradGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledBy(c.attrs(), input));
  MG_RETURN_IF_ERROR(PartialShape::Merge(input, c.input(1)).status());
  MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(2)).status());
  c.set_output(0, pooled);
  return Status();
}

Result<PartialShape> PooledVolume(ShapeContext& c, const PartialShape& input) {
  MG_ASSIGN_OR_RETURN(const VolumeFormat format,
                      ParseVolumeFormat(c.attr<std::string>("data_format")));
  Window depth, rows, columns;
  MG_RETURN_IF_ERROR(PlaceVolumePools(c.attrs(), format, input.dim(format.d), input.dim(format.h),
                                      input.dim(format.w), &depth, &rows, &columns));
  PartialShape out = input;
  out.set_dim(format.d, depth.out);
  out.set_dim(format.h, rows.out);
  out.set_dim(format.w, columns.out);
  return out;
}

Status Pool3DShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 5));
  MG_ASSIGN_OR_RETURN(const PartialShape out, PooledVolume(c, input));
  c.set_output(0, out);
  return Status();
}

Status MaxPool3DGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 5));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledVolume(c, input));
  for (int i : {1, 2}) MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(i)).status());
  c.set_output(0, input);
  return Status();
}

Status MaxPool3DGradGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 5));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledVolume(c, input));
  MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(1)).status());
  MG_RETURN_IF_ERROR(PartialShape::Merge(input, c.input(2)).status());
  c.set_output(0, pooled);
  return Status();
}

Status AvgPool3DGradShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 5).status());
  MG_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(0));
  MG_ASSIGN_OR_RETURN(out, PartialShape::Merge(out, PartialShape::UnknownOfRank(5)));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, PooledVolume(c, out));
  MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(1)).status());
  c.set_output(0, out);
  return Status();
}

Status PoolShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape out, Pooled(c, input));
  c.set_output(0, out);
  return Status();
}

Status MaxPoolGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, Pooled(c, input));
  for (int i : {1, 2}) MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(i)).status());
  c.set_output(0, input);
  return Status();
}

Status MaxPoolGradGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, Pooled(c, input));
  MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(1)).status());
  MG_RETURN_IF_ERROR(PartialShape::Merge(input, c.input(2)).status());
  c.set_output(0, pooled);
  return Status();
}

Status AvgPoolGradShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 4).status());
  MG_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(0));
  MG_ASSIGN_OR_RETURN(out, PartialShape::Merge(out, PartialShape::UnknownOfRank(4)));
  MG_ASSIGN_OR_RETURN(const PartialShape pooled, Pooled(c, out));
  MG_RETURN_IF_ERROR(PartialShape::Merge(pooled, c.input(1)).status());
  c.set_output(0, out);
  return Status();
}

Status MaxPoolGradient(GradientContext& c) {
  const Attrs& a = c.attrs();
  c.set_grad(
      0, MaxPoolGrad(c.scope(), c.input(0), c.output(0), c.grad(0),
                     a.Get<std::vector<int64_t>>("ksize"), a.Get<std::vector<int64_t>>("strides"),
                     a.Get<std::string>("padding"), a.Get<std::string>("data_format")));
  return Status();
}

// The positions of the maxima depend on the inputs alone: MaxPoolGrad is linear in `grad`, and so
// is MaxPoolGradGrad.
Status MaxPoolGradGradient(GradientContext& c) {
  const Attrs& a = c.attrs();
  const auto ksize = a.Get<std::vector<int64_t>>("ksize"),
             strides = a.Get<std::vector<int64_t>>("strides");
  const auto padding = a.Get<std::string>("padding"), format = a.Get<std::string>("data_format");
  c.set_grad(2, MaxPoolGradGrad(c.scope(), c.input(0), c.input(1), c.grad(0), ksize, strides,
                                padding, format));
  return Status();
}

Status MaxPoolGradGradGradient(GradientContext& c) {
  const Attrs& a = c.attrs();
  const auto ksize = a.Get<std::vector<int64_t>>("ksize"),
             strides = a.Get<std::vector<int64_t>>("strides");
  const auto padding = a.Get<std::string>("padding"), format = a.Get<std::string>("data_format");
  c.set_grad(2, MaxPoolGrad(c.scope(), c.input(0), c.input(1), c.grad(0), ksize, strides, padding,
                            format));
  return Status();
}

Status AvgPoolGradient(GradientContext& c) {
  const Attrs& a = c.attrs();
  const Output shape = OpBuilder(c.scope(), "Shape").Input(c.input(0)).BuildOutput();
  c.set_grad(0, AvgPoolGrad(c.scope(), shape, c.grad(0), a.Get<std::vector<int64_t>>("ksize"),
                            a.Get<std::vector<int64_t>>("strides"), a.Get<std::string>("padding"),
                            a.Get<std::string>("data_format")));
  return Status();
}

// Averaging is linear, so the gradient of its gradient is averaging again.
Status AvgPoolGradGradient(GradientContext& c) {
  const Attrs& a = c.attrs();
  c.set_grad(1, AvgPool(c.scope(), c.grad(0), a.Get<std::vector<int64_t>>("ksize"),
                        a.Get<std::vector<int64_t>>("strides"), a.Get<std::string>("padding"),
                        a.Get<std::string>("data_format")));
  return Status();
}

// `op` with `inputs` and those attributes of the node that is differentiated that both have.
Output Same(GradientContext& c, const char* op, std::initializer_list<Output> inputs,
            std::initializer_list<const char*> attrs) {
  OpBuilder builder(c.scope(), op);
  for (const Output& input : inputs) builder.Input(input);
  for (const char* name : attrs) builder.Attr(name, *c.attrs().Find(name));
  return builder.BuildOutput();
}

Status MaxPoolV2Gradient(GradientContext& c) {
  c.set_grad(0,
             Same(c, "MaxPoolGradV2", {c.input(0), c.output(0), c.grad(0), c.input(1), c.input(2)},
                  {"padding", "data_format"}));
  return Status();
}
Status MaxPoolGradV2Gradient(GradientContext& c) {
  c.set_grad(
      2, Same(c, "MaxPoolGradGradV2", {c.input(0), c.input(1), c.grad(0), c.input(3), c.input(4)},
              {"padding", "data_format"}));
  return Status();
}
Status MaxPoolGradGradV2Gradient(GradientContext& c) {
  c.set_grad(2,
             Same(c, "MaxPoolGradV2", {c.input(0), c.input(1), c.grad(0), c.input(3), c.input(4)},
                  {"padding", "data_format"}));
  return Status();
}

#define MG_ARGMAX_ATTRS \
  { "ksize", "strides", "padding", "include_batch_in_index" }
Status ArgmaxGradient(GradientContext& c) {
  if (!c.gradient(0).valid()) return Status();
  c.set_grad(
      0, Same(c, "MaxPoolGradWithArgmax", {c.input(0), c.grad(0), c.output(1)}, MG_ARGMAX_ATTRS));
  return Status();
}
Status ArgmaxGradGradient(GradientContext& c) {
  c.set_grad(1, Same(c, "MaxPoolGradGradWithArgmax", {c.input(0), c.grad(0), c.input(2)},
                     MG_ARGMAX_ATTRS));
  return Status();
}
Status ArgmaxGradGradGradient(GradientContext& c) {
  c.set_grad(
      1, Same(c, "MaxPoolGradWithArgmax", {c.input(0), c.grad(0), c.input(2)}, MG_ARGMAX_ATTRS));
  return Status();
}
#undef MG_ARGMAX_ATTRS

#define MG_VOLUME_ATTRS \
  { "ksize", "strides", "padding", "data_format" }
Status MaxPool3DGradient(GradientContext& c) {
  c.set_grad(0, Same(c, "MaxPool3DGrad", {c.input(0), c.output(0), c.grad(0)}, MG_VOLUME_ATTRS));
  return Status();
}
Status MaxPool3DGradGradient(GradientContext& c) {
  c.set_grad(2, Same(c, "MaxPool3DGradGrad", {c.input(0), c.input(1), c.grad(0)}, MG_VOLUME_ATTRS));
  return Status();
}
Status MaxPool3DGradGradGradient(GradientContext& c) {
  c.set_grad(2, Same(c, "MaxPool3DGrad", {c.input(0), c.input(1), c.grad(0)}, MG_VOLUME_ATTRS));
  return Status();
}
Status AvgPool3DGradient(GradientContext& c) {
  const Output shape = OpBuilder(c.scope(), "Shape").Input(c.input(0)).BuildOutput();
  c.set_grad(0, Same(c, "AvgPool3DGrad", {shape, c.grad(0)}, MG_VOLUME_ATTRS));
  return Status();
}
Status AvgPool3DGradGradient(GradientContext& c) {
  c.set_grad(1, Same(c, "AvgPool3D", {c.grad(0)}, MG_VOLUME_ATTRS));
  return Status();
}
#undef MG_VOLUME_ATTRS

// Windows as inputs.
void DefineV2(OpRegistry* registry) {
  const auto add = [&](OpDef def, const char* type) {
    registry->Add(def.Input("ksize: int32")
                      .Input("strides: int32")
                      .Output("output: T")
                      .Attr(type)
                      .Attr("padding: {'SAME', 'VALID'}")
                      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'"));
  };
  const char* some =
      "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16} = DT_FLOAT";
  add(OpDef("MaxPoolV2").Input("input: T").Shape(PoolV2Shape).Gradient(MaxPoolV2Gradient), some);
  add(OpDef("MaxPoolGradV2")
          .Input("orig_input: T")
          .Input("orig_output: T")
          .Input("grad: T")
          .Shape(MaxPoolGradV2Shape)
          .Gradient(MaxPoolGradV2Gradient),
      "T: " MG_OP_REAL_TYPES " = DT_FLOAT");
  add(OpDef("MaxPoolGradGradV2")
          .Input("orig_input: T")
          .Input("orig_output: T")
          .Input("grad: T")
          .Shape(MaxPoolGradGradV2Shape)
          .Gradient(MaxPoolGradGradV2Gradient),
      "T: " MG_OP_REAL_TYPES);
}

void DefineArgmax(OpRegistry* registry) {
  const auto add = [&](OpDef def, const char* index) {
    registry->Add(def.Attr("ksize: list(int) >= 4")
                      .Attr("strides: list(int) >= 4")
                      .Attr("padding: {'SAME', 'VALID'}")
                      .Attr("include_batch_in_index: bool = false")
                      .Attr(index)
                      .Attr("T: " MG_OP_REAL_TYPES));
  };
  add(OpDef("MaxPoolWithArgmax")
          .Input("input: T")
          .Output("output: T")
          .Output("argmax: Targmax")
          .Shape(ArgmaxShape)
          .Gradient(ArgmaxGradient),
      "Targmax: {int32, int64} = DT_INT64");
  add(OpDef("MaxPoolGradWithArgmax")
          .Input("input: T")
          .Input("grad: T")
          .Input("argmax: Targmax")
          .Output("output: T")
          .Shape(ArgmaxGradShape)
          .Gradient(ArgmaxGradGradient),
      "Targmax: {int32, int64}");
  add(OpDef("MaxPoolGradGradWithArgmax")
          .Input("input: T")
          .Input("grad: T")
          .Input("argmax: Targmax")
          .Output("output: T")
          .Shape(ArgmaxGradGradShape)
          .Gradient(ArgmaxGradGradGradient),
      "Targmax: {int32, int64}");
}

void DefineVolumes(OpRegistry* registry) {
  const auto add = [&](OpDef def, const char* type) {
    registry->Add(def.Attr("ksize: list(int) >= 5")
                      .Attr("strides: list(int) >= 5")
                      .Attr("padding: {'SAME', 'VALID'}")
                      .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'")
                      .Attr(type));
  };
  const char* floats = "T: {half, bfloat16, float, double}";
  add(OpDef("MaxPool3D")
          .Input("input: T")
          .Output("output: T")
          .Shape(Pool3DShape)
          .Gradient(MaxPool3DGradient),
      floats);
  add(OpDef("MaxPool3DGrad")
          .Input("orig_input: TInput")
          .Input("orig_output: TInput")
          .Input("grad: T")
          .Output("output: T")
          .Attr("TInput: {half, bfloat16, float, double} = DT_FLOAT")
          .Shape(MaxPool3DGradShape)
          .Gradient(MaxPool3DGradGradient),
      "T: {half, bfloat16, float, double} = DT_FLOAT");
  add(OpDef("MaxPool3DGradGrad")
          .Input("orig_input: T")
          .Input("orig_output: T")
          .Input("grad: T")
          .Output("output: T")
          .Shape(MaxPool3DGradGradShape)
          .Gradient(MaxPool3DGradGradGradient),
      "T: " MG_OP_REAL_TYPES);
  add(OpDef("AvgPool3D")
          .Input("input: T")
          .Output("output: T")
          .Shape(Pool3DShape)
          .Gradient(AvgPool3DGradient),
      floats);
  add(OpDef("AvgPool3DGrad")
          .Input("orig_input_shape: int32")
          .Input("grad: T")
          .Output("output: T")
          .Shape(AvgPool3DGradShape)
          .Gradient(AvgPool3DGradGradient),
      floats);
}

OpDef& AddPoolAttrs(OpDef& def) {
  return def.Attr("ksize: list(int) >= 4")
      .Attr("strides: list(int) >= 4")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'");
}

}  // namespace

void Define(OpRegistry* registry) {
  OpDef max_pool("MaxPool");
  max_pool.Input("input: T")
      .Output("output: T")
      .Attr("T: {half, bfloat16, float, double} = DT_FLOAT");
  max_pool.Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}").Attr("explicit_paddings: list(int) = []");
  registry->Add(AddPoolAttrs(max_pool).Shape(PoolShape).Gradient(MaxPoolGradient));

  OpDef max_pool_grad("MaxPoolGrad");
  max_pool_grad.Input("orig_input: T").Input("orig_output: T").Input("grad: T").Output("output: T");
  max_pool_grad.Attr("T: {half, bfloat16, float, double} = DT_FLOAT");
  max_pool_grad.Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr("explicit_paddings: list(int) = []");
  registry->Add(AddPoolAttrs(max_pool_grad).Shape(MaxPoolGradShape).Gradient(MaxPoolGradGradient));

  OpDef max_pool_grad_grad("MaxPoolGradGrad");
  max_pool_grad_grad.Input("orig_input: T")
      .Input("orig_output: T")
      .Input("grad: T")
      .Output("output: T");
  max_pool_grad_grad.Attr("T: {half, bfloat16, float, double}").Attr("padding: {'SAME', 'VALID'}");
  registry->Add(AddPoolAttrs(max_pool_grad_grad)
                    .Shape(MaxPoolGradGradShape)
                    .Gradient(MaxPoolGradGradGradient));

  OpDef avg_pool("AvgPool");
  avg_pool.Input("value: T")
      .Output("output: T")
      .Attr("T: {half, bfloat16, float, double}")
      .Attr("padding: {'SAME', 'VALID'}");
  registry->Add(AddPoolAttrs(avg_pool).Shape(PoolShape).Gradient(AvgPoolGradient));

  OpDef avg_pool_grad("AvgPoolGrad");
  avg_pool_grad.Input("orig_input_shape: int32").Input("grad: T").Output("output: T");
  avg_pool_grad.Attr("T: {half, bfloat16, float, double}").Attr("padding: {'SAME', 'VALID'}");
  registry->Add(AddPoolAttrs(avg_pool_grad).Shape(AvgPoolGradShape).Gradient(AvgPoolGradGradient));
  DefineV2(registry);
  DefineArgmax(registry);
  DefineVolumes(registry);
  DefineFractional(registry);
}

}  // namespace ops::pool
}  // namespace monograph
