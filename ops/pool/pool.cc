// Functions, shape functions, gradients and definitions. All ops ask PlaceWindows (ops/window.h)
// where the windows lie, so that shape functions and kernels cannot disagree. Pooling has gradients
// of any order: averaging is linear, and MaxPoolGrad and MaxPoolGradGrad are each other's gradient.
#include "ops/pool/pool.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"
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

namespace ops::pool {
namespace {

Result<PartialShape> Pooled(ShapeContext& c, const PartialShape& input) {
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(c.attr<std::string>("data_format")));
  int64_t kh = 1, kw = 1;
  MG_RETURN_IF_ERROR(ImageAttr(c.attrs(), "ksize", format, &kh, &kw));
  Window rows, columns;
  MG_RETURN_IF_ERROR(PlaceWindows(c.attrs(), format, input.dim(format.h), input.dim(format.w), kh,
                                  kw, &rows, &columns));
  PartialShape out = input;
  out.set_dim(format.h, rows.out);
  out.set_dim(format.w, columns.out);
  return out;
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
}

}  // namespace ops::pool
}  // namespace monograph
