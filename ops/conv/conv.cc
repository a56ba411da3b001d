// Functions, shape functions, gradients and definitions of convolutions. A convolution is linear in
// its input and in its filter, so the gradients of its two gradient ops are convolutions and
// gradient ops again. The ops that begin with '_' are made by rewrites (FuseOps, GroupCasts) after
// gradients were added, and have none.
#include "ops/conv/conv.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/conv/geometry.h"
#include "ops/dims.h"
#include "ops/shape/shape.h"
#include "ops/window.h"

namespace monograph {
namespace {

Output Build(const Scope& scope, const char* op, Output a, Output b, const Output* c,
             const std::vector<int64_t>& strides, const std::string& padding,
             const Conv2DOptions& options) {
  OpBuilder builder(scope, op);
  builder.Input(a).Input(b);
  if (c != nullptr) builder.Input(*c);
  return builder.Attr("strides", AttrValue(strides))
      .Attr("padding", AttrValue(padding))
      .Attr("data_format", AttrValue(options.data_format))
      .Attr("dilations", AttrValue(options.dilations))
      .Attr("explicit_paddings", AttrValue(options.explicit_paddings))
      .BuildOutput();
}

}  // namespace

Output Conv2D(const Scope& scope, Output input, Output filter, const std::vector<int64_t>& strides,
              const std::string& padding, const Conv2DOptions& options) {
  return Build(scope, "Conv2D", input, filter, nullptr, strides, padding, options);
}

Output Conv2DBackpropInput(const Scope& scope, Output input_sizes, Output filter,
                           Output out_backprop, const std::vector<int64_t>& strides,
                           const std::string& padding, const Conv2DOptions& options) {
  return Build(scope, "Conv2DBackpropInput", input_sizes, filter, &out_backprop, strides, padding,
               options);
}

Output Conv2DBackpropFilter(const Scope& scope, Output input, Output filter_sizes,
                            Output out_backprop, const std::vector<int64_t>& strides,
                            const std::string& padding, const Conv2DOptions& options) {
  return Build(scope, "Conv2DBackpropFilter", input, filter_sizes, &out_backprop, strides, padding,
               options);
}

Output DepthwiseConv2dNative(const Scope& scope, Output input, Output filter,
                             const std::vector<int64_t>& strides, const std::string& padding,
                             const Conv2DOptions& options) {
  return Build(scope, "DepthwiseConv2dNative", input, filter, nullptr, strides, padding, options);
}

Output Conv3D(const Scope& scope, Output input, Output filter, const std::vector<int64_t>& strides,
              const std::string& padding, const Conv3DOptions& options) {
  return OpBuilder(scope, "Conv3D")
      .Input(input)
      .Input(filter)
      .Attr("strides", AttrValue(strides))
      .Attr("padding", AttrValue(padding))
      .Attr("data_format", AttrValue(options.data_format))
      .Attr("dilations", AttrValue(options.dilations))
      .BuildOutput();
}

namespace ops::conv {
namespace {

Status Conv2DShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(c.attr<std::string>("data_format")));
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(PartialShape filter, c.WithRank(1, 4));
  if (FilterIsTurned(c.attrs()))
    filter = PartialShape{filter.dim(1), filter.dim(2), filter.dim(3), filter.dim(0)};
  const int64_t channels = input.dim(format.c), filter_channels = filter.dim(2);
  if (channels >= 0 && filter_channels >= 0 && channels != filter_channels)
    MG_RETURN_IF_ERROR(GroupsOf(channels, filter_channels, filter.dim(3)).status());
  Window rows, columns;
  MG_RETURN_IF_ERROR(PlaceWindows(c.attrs(), format, input.dim(format.h), input.dim(format.w),
                                  filter.dim(0), filter.dim(1), &rows, &columns));
  PartialShape out = PartialShape::UnknownOfRank(4);
  out.set_dim(format.n, input.dim(format.n));
  out.set_dim(format.h, rows.out);
  out.set_dim(format.w, columns.out);
  out.set_dim(format.c, filter.dim(3));
  c.set_output(0, out);
  return Status();
}

Status DepthwiseShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(c.attr<std::string>("data_format")));
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 4));
  MG_ASSIGN_OR_RETURN(const int64_t channels, MergeDim(input.dim(format.c), filter.dim(2),
                                                       "channels of the input and of the filter"));
  Window rows, columns;
  MG_RETURN_IF_ERROR(PlaceWindows(c.attrs(), format, input.dim(format.h), input.dim(format.w),
                                  filter.dim(0), filter.dim(1), &rows, &columns));
  PartialShape out = PartialShape::UnknownOfRank(4);
  out.set_dim(format.n, input.dim(format.n));
  out.set_dim(format.h, rows.out);
  out.set_dim(format.w, columns.out);
  int64_t out_channels = -1;
  if (channels >= 0 && filter.dim(3) >= 0 &&
      __builtin_mul_overflow(channels, filter.dim(3), &out_channels)) {
    return InvalidArgument("the result is too large");
  }
  out.set_dim(format.c, out_channels);
  c.set_output(0, out);
  return Status();
}

// The channels of out_backprop are not a dimension of the filter: its sizes come from input 1.
Status DepthwiseFilterShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 4).status());
  MG_RETURN_IF_ERROR(c.WithRank(2, 4).status());
  MG_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(1));
  MG_ASSIGN_OR_RETURN(out, PartialShape::Merge(out, PartialShape::UnknownOfRank(4)));
  c.set_output(0, out);
  return Status();
}

Status Conv3DShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const VolumeFormat format,
                      ParseVolumeFormat(c.attr<std::string>("data_format")));
  MG_ASSIGN_OR_RETURN(const PartialShape input, c.WithRank(0, 5));
  MG_ASSIGN_OR_RETURN(const PartialShape filter, c.WithRank(1, 5));
  MG_RETURN_IF_ERROR(
      MergeDim(input.dim(format.c), filter.dim(3), "channels of the input and of the filter")
          .status());
  Window depth{.in = input.dim(format.d), .size = filter.dim(0)},
      rows{.in = input.dim(format.h), .size = filter.dim(1)},
      columns{.in = input.dim(format.w), .size = filter.dim(2)};
  MG_RETURN_IF_ERROR(PlaceVolumeWindows(c.attrs(), format, &depth, &rows, &columns));
  PartialShape out = PartialShape::UnknownOfRank(5);
  out.set_dim(format.n, input.dim(format.n));
  out.set_dim(format.d, depth.out);
  out.set_dim(format.h, rows.out);
  out.set_dim(format.w, columns.out);
  out.set_dim(format.c, filter.dim(4));
  c.set_output(0, out);
  return Status();
}

// Of the gradients: the output's shape is the values of input kSizes, or the shape of input kLike.
template <int kSizes>
Status SizesShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(kSizes));
  MG_ASSIGN_OR_RETURN(out, PartialShape::Merge(out, PartialShape::UnknownOfRank(5)));
  c.set_output(0, out);
  return Status();
}
template <int kLike>
Status LikeShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape out, c.WithRank(kLike, 5));
  c.set_output(0, out);
  return Status();
}

Status BackpropInputShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(c.attr<std::string>("data_format")));
  MG_RETURN_IF_ERROR(c.WithRank(1, 4).status());
  MG_ASSIGN_OR_RETURN(const PartialShape dy, c.WithRank(2, 4));
  MG_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(0));
  MG_ASSIGN_OR_RETURN(out, PartialShape::Merge(out, PartialShape::UnknownOfRank(4)));
  if (out.dim(format.n) < 0) out.set_dim(format.n, dy.dim(format.n));
  c.set_output(0, out);
  return Status();
}

Status BackpropFilterShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const ImageFormat format,
                      ParseImageFormat(c.attr<std::string>("data_format")));
  MG_RETURN_IF_ERROR(c.WithRank(0, 4).status());
  MG_ASSIGN_OR_RETURN(const PartialShape dy, c.WithRank(2, 4));
  MG_ASSIGN_OR_RETURN(PartialShape out, c.InputAsShape(1));
  MG_ASSIGN_OR_RETURN(out, PartialShape::Merge(out, PartialShape{-1, -1, -1, dy.dim(format.c)}));
  if (FilterIsTurned(c.attrs())) out = PartialShape{out.dim(3), out.dim(0), out.dim(1), out.dim(2)};
  c.set_output(0, out);
  return Status();
}

Status BackpropShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(BackpropFilterShape(c));
  if (c.num_outputs() == 2) c.set_output(1, c.input(0));
  return Status();
}

struct Parsed {
  std::vector<int64_t> strides;
  std::string padding;
  Conv2DOptions options;
};

Parsed Parse(const Attrs& attrs) {
  return {attrs.Get<std::vector<int64_t>>("strides"),
          attrs.Get<std::string>("padding"),
          {.data_format = attrs.Get<std::string>("data_format"),
           .dilations = attrs.GetOr<std::vector<int64_t>>("dilations", {1, 1, 1, 1}),
           .explicit_paddings = attrs.GetOr<std::vector<int64_t>>("explicit_paddings", {})}};
}

// The sizes of `x`, which are a constant where the graph tells them.
Output SizesOf(const Scope& s, const Output& x) {
  return x.shape().fully_known() ? IntsConst(s, x.shape().dims()) : ShapeOf(s, x);
}

Status Conv2DGradient(GradientContext& c) {
  const Parsed p = Parse(c.attrs());
  const Output x = c.input(0), w = c.input(1), g = c.grad(0);
  c.set_grad(0, Conv2DBackpropInput(c.scope(), SizesOf(c.scope(), x), w, g, p.strides, p.padding,
                                    p.options));
  c.set_grad(1, Conv2DBackpropFilter(c.scope(), x, SizesOf(c.scope(), w), g, p.strides, p.padding,
                                     p.options));
  return Status();
}

Status BackpropInputGradient(GradientContext& c) {
  const Parsed p = Parse(c.attrs());
  const Output w = c.input(1), dy = c.input(2), g = c.grad(0);
  c.set_grad(1, Conv2DBackpropFilter(c.scope(), g, SizesOf(c.scope(), w), dy, p.strides, p.padding,
                                     p.options));
  c.set_grad(2, Conv2D(c.scope(), g, w, p.strides, p.padding, p.options));
  return Status();
}

Status BackpropFilterGradient(GradientContext& c) {
  const Parsed p = Parse(c.attrs());
  const Output x = c.input(0), dy = c.input(2), g = c.grad(0);
  c.set_grad(0, Conv2DBackpropInput(c.scope(), SizesOf(c.scope(), x), g, dy, p.strides, p.padding,
                                    p.options));
  c.set_grad(2, Conv2D(c.scope(), x, g, p.strides, p.padding, p.options));
  return Status();
}

Status DepthwiseGradient(GradientContext& c) {
  const Parsed p = Parse(c.attrs());
  const Output x = c.input(0), w = c.input(1), g = c.grad(0);
  c.set_grad(0, Build(c.scope(), "DepthwiseConv2dNativeBackpropInput", SizesOf(c.scope(), x), w, &g,
                      p.strides, p.padding, p.options));
  c.set_grad(1, Build(c.scope(), "DepthwiseConv2dNativeBackpropFilter", x, SizesOf(c.scope(), w),
                      &g, p.strides, p.padding, p.options));
  return Status();
}

Status DepthwiseInputGradient(GradientContext& c) {
  const Parsed p = Parse(c.attrs());
  const Output w = c.input(1), dy = c.input(2), g = c.grad(0);
  c.set_grad(1, Build(c.scope(), "DepthwiseConv2dNativeBackpropFilter", g, SizesOf(c.scope(), w),
                      &dy, p.strides, p.padding, p.options));
  c.set_grad(2, DepthwiseConv2dNative(c.scope(), g, w, p.strides, p.padding, p.options));
  return Status();
}

Status DepthwiseFilterGradient(GradientContext& c) {
  const Parsed p = Parse(c.attrs());
  const Output x = c.input(0), dy = c.input(2), g = c.grad(0);
  c.set_grad(0, Build(c.scope(), "DepthwiseConv2dNativeBackpropInput", SizesOf(c.scope(), x), g,
                      &dy, p.strides, p.padding, p.options));
  c.set_grad(2, DepthwiseConv2dNative(c.scope(), x, g, p.strides, p.padding, p.options));
  return Status();
}

// Conv3D and its gradients with the attributes of the node that is differentiated.
Output Volumes(GradientContext& c, const char* op, std::initializer_list<Output> inputs) {
  OpBuilder builder(c.scope(), op);
  for (const Output& input : inputs) builder.Input(input);
  return builder.Attr("strides", AttrValue(c.attrs().Get<std::vector<int64_t>>("strides")))
      .Attr("padding", AttrValue(c.attrs().Get<std::string>("padding")))
      .Attr("data_format", AttrValue(c.attrs().GetOr<std::string>("data_format", "NDHWC")))
      .Attr("dilations",
            AttrValue(c.attrs().GetOr<std::vector<int64_t>>("dilations", {1, 1, 1, 1, 1})))
      .BuildOutput();
}

void SetInputOfVolumes(GradientContext& c, int i, Output x, Output w, Output dy) {
  c.set_grad(i, Volumes(c, "Conv3DBackpropInputV2", {SizesOf(c.scope(), x), w, dy}));
}
void SetFilterOfVolumes(GradientContext& c, int i, Output x, Output w, Output dy) {
  c.set_grad(i, Volumes(c, "Conv3DBackpropFilterV2", {x, SizesOf(c.scope(), w), dy}));
}

Status Conv3DGradient(GradientContext& c) {
  SetInputOfVolumes(c, 0, c.input(0), c.input(1), c.grad(0));
  SetFilterOfVolumes(c, 1, c.input(0), c.input(1), c.grad(0));
  return Status();
}
Status Conv3DInputGradient(GradientContext& c) {
  SetFilterOfVolumes(c, 1, c.grad(0), c.input(1), c.input(2));
  c.set_grad(2, Volumes(c, "Conv3D", {c.grad(0), c.input(1)}));
  return Status();
}
Status Conv3DFilterGradient(GradientContext& c) {
  SetInputOfVolumes(c, 0, c.input(0), c.grad(0), c.input(2));
  c.set_grad(2, Volumes(c, "Conv3D", {c.input(0), c.grad(0)}));
  return Status();
}

void DefineDepthwise(OpRegistry* registry) {
  const auto add_attrs = [](OpDef def) {
    return def.Attr("T: {half, bfloat16, float, double}")
        .Attr("strides: list(int)")
        .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
        .Attr("explicit_paddings: list(int) = []")
        .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
        .Attr("dilations: list(int) = [1, 1, 1, 1]");
  };
  registry->Add(add_attrs(OpDef("DepthwiseConv2dNative")
                              .Input("input: T")
                              .Input("filter: T")
                              .Output("output: T")
                              .Shape(DepthwiseShape)
                              .Gradient(DepthwiseGradient)));
  registry->Add(add_attrs(OpDef("DepthwiseConv2dNativeBackpropInput")
                              .Input("input_sizes: int32")
                              .Input("filter: T")
                              .Input("out_backprop: T")
                              .Output("output: T")
                              .Shape(BackpropInputShape)
                              .Gradient(DepthwiseInputGradient)));
  registry->Add(add_attrs(OpDef("DepthwiseConv2dNativeBackpropFilter")
                              .Input("input: T")
                              .Input("filter_sizes: int32")
                              .Input("out_backprop: T")
                              .Output("output: T")
                              .Shape(DepthwiseFilterShape)
                              .Gradient(DepthwiseFilterGradient)));
}

void DefineVolumes(OpRegistry* registry) {
  const auto add_attrs = [](OpDef def) {
    return def.Attr("strides: list(int) >= 5")
        .Attr("padding: {'SAME', 'VALID'}")
        .Attr("dilations: list(int) = [1, 1, 1, 1, 1]");
  };
  const auto with_format = [&](OpDef def) {
    return add_attrs(def.Attr("T: {half, bfloat16, float, double}")
                         .Attr("data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'"));
  };
  registry->Add(with_format(OpDef("Conv3D")
                                .Input("input: T")
                                .Input("filter: T")
                                .Output("output: T")
                                .Shape(Conv3DShape)
                                .Gradient(Conv3DGradient)));
  registry->Add(with_format(OpDef("Conv3DBackpropInputV2")
                                .Input("input_sizes: Tshape")
                                .Input("filter: T")
                                .Input("out_backprop: T")
                                .Output("output: T")
                                .Attr("Tshape: {int32, int64} = DT_INT32")
                                .Shape(SizesShape<0>)
                                .Gradient(Conv3DInputGradient)));
  registry->Add(with_format(OpDef("Conv3DBackpropFilterV2")
                                .Input("input: T")
                                .Input("filter_sizes: int32")
                                .Input("out_backprop: T")
                                .Output("output: T")
                                .Shape(SizesShape<1>)
                                .Gradient(Conv3DFilterGradient)));
  for (const char* name : {"Conv3DBackpropInput", "Conv3DBackpropFilter"}) {
    const bool input = std::string_view(name).ends_with("Input");
    registry->Add(add_attrs(OpDef(name)
                                .Input("input: T")
                                .Input("filter: T")
                                .Input("out_backprop: T")
                                .Output("output: T")
                                .Attr("T: {half, float, double}")
                                .Shape(input ? LikeShape<0> : LikeShape<1>)
                                .Gradient(input ? Conv3DInputGradient : Conv3DFilterGradient)));
  }
}

OpDef& AddConvAttrs(OpDef& def) {
  return def.Attr("T: {half, bfloat16, float, double}")
      .Attr("strides: list(int)")
      .Attr("use_cudnn_on_gpu: bool = true")
      .Attr("padding: {'SAME', 'VALID', 'EXPLICIT'}")
      .Attr("explicit_paddings: list(int) = []")
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
      .Attr("dilations: list(int) = [1, 1, 1, 1]");
}

}  // namespace

void Define(OpRegistry* registry) {
  OpDef forward("Conv2D");
  forward.Input("input: T")
      .Input("filter: T")
      .Output("output: T")
      .Shape(Conv2DShape)
      .Gradient(Conv2DGradient);
  registry->Add(AddConvAttrs(forward));
  OpDef fused("_FusedConv2D");
  fused.Input("input: T")
      .Input("filter: T")
      .Input("args: num_args * T")
      .Output("output: T")
      .Shape(Conv2DShape);
  AddConvAttrs(fused)
      .Attr("num_args: int >= 0")
      .Attr("fused_ops: list(string) = []")
      .Attr("filter_last_first: bool = false")
      .Attr("epsilon: float = 0.0001")
      .Attr("leakyrelu_alpha: float = 0.2");
  registry->Add(fused);
  OpDef backprop_input("Conv2DBackpropInput");
  backprop_input.Input("input_sizes: int32")
      .Input("filter: T")
      .Input("out_backprop: T")
      .Output("output: T");
  registry->Add(
      AddConvAttrs(backprop_input).Shape(BackpropInputShape).Gradient(BackpropInputGradient));
  OpDef turned("_Conv2DBackpropInput");  // its filter may have out_channels first
  turned.Input("input_sizes: int32")
      .Input("filter: T")
      .Input("out_backprop: T")
      .Output("output: T")
      .Shape(BackpropInputShape);
  registry->Add(AddConvAttrs(turned).Attr("filter_last_first: bool = false"));
  OpDef backprop_filter("Conv2DBackpropFilter");
  backprop_filter.Input("input: T")
      .Input("filter_sizes: int32")
      .Input("out_backprop: T")
      .Output("output: T");
  registry->Add(
      AddConvAttrs(backprop_filter).Shape(BackpropFilterShape).Gradient(BackpropFilterGradient));
  OpDef turned_filter("_Conv2DBackpropFilter");  // its output may have out_channels first
  turned_filter.Input("input: T")
      .Input("filter_sizes: int32")
      .Input("out_backprop: T")
      .Output("output: T")
      .Shape(BackpropFilterShape);
  registry->Add(AddConvAttrs(turned_filter).Attr("filter_last_first: bool = false"));
  // Conv2DBackpropFilter and, if num_filters is 1, Conv2DBackpropInput for the same gradient;
  // fused_ops = ["MaxPoolGrad"] puts the gradient of a 2x2 max pooling with strides 2 before them,
  // whose input and output are `args`.
  OpDef backprop("_Conv2DBackprop");
  backprop.Input("input: T")
      .Input("filter_sizes: int32")
      .Input("out_backprop: T")
      .Input("filter: num_filters * T")
      .Input("args: num_args * T")
      .Output("filter_backprop: T")
      .Output("input_backprop: num_filters * T")
      .Shape(BackpropShape);
  AddConvAttrs(backprop)
      .Attr("num_filters: int >= 0")
      .Attr("num_args: int >= 0")
      .Attr("fused_ops: list(string) = []")
      .Attr("pool_padding: {'SAME', 'VALID'} = 'VALID'");
  registry->Add(backprop);
  DefineDepthwise(registry);
  DefineVolumes(registry);
}

}  // namespace ops::conv
}  // namespace monograph
