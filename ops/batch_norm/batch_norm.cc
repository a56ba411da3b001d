// FusedBatchNorm in its three versions, their gradients, and the fused forms that FuseOps makes on
// GPUs. While training the gradient takes what the forward kernel left in the reserved outputs (3
// to 5; the last one is the third version's alone); otherwise it takes the given mean and variance.
// The fused forms have no gradients: they are made after gradients were added. And the older
// BatchNormWithGlobalNormalization.
#include "ops/batch_norm/batch_norm.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/types.h"

namespace monograph {

FusedBatchNormOutputs FusedBatchNorm(const Scope& scope, Output x, Output scale, Output offset,
                                     Output mean, Output variance,
                                     const FusedBatchNormOptions& options) {
  const Scope helpers = scope.HelperScope("FusedBatchNormV3");
  const auto or_empty = [&](const Output& given) {
    return given.valid() ? given : Const(helpers, Tensor::Vector<float>({}));
  };
  const Operation op =
      OpBuilder(scope, "FusedBatchNormV3")
          .Input(x)
          .Input(scale)
          .Input(offset)
          .Input(or_empty(mean))
          .Input(or_empty(variance))
          .Attr("epsilon", AttrValue(options.epsilon))
          .Attr("data_format", AttrValue(options.data_format))
          .Attr("is_training", AttrValue(options.is_training))
          .Attr("exponential_avg_factor", AttrValue(options.exponential_avg_factor))
          .Build();
  return {op.output(0), op.output(1), op.output(2)};
}

namespace ops::batch_norm {
namespace {

// The shape of image input `i`, whose rank data_format gives, and the dimension of its channels.
Result<PartialShape> Images(ShapeContext& c, int i, int* channel) {
  const std::string& format = c.attr<std::string>("data_format");
  const int rank = static_cast<int>(format.size());
  *channel = format[1] == 'C' ? 1 : rank - 1;
  return c.WithRank(i, rank);
}

// What the vectors among the inputs say about the number of channels.
Status MergeVectors(ShapeContext& c, std::initializer_list<int> inputs, int64_t* channels) {
  for (int i : inputs) {
    MG_ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(i, 1));
    MG_ASSIGN_OR_RETURN(*channels,
                        MergeDim(*channels, vector.dim(0), "channels of x and length of a vector"));
  }
  return Status();
}

Status ForwardShape(ShapeContext& c) {
  int channel = 0;
  MG_ASSIGN_OR_RETURN(PartialShape x, Images(c, 0, &channel));
  int64_t channels = x.dim(channel);
  MG_RETURN_IF_ERROR(MergeVectors(c, {1, 2}, &channels));
  if (!c.attr<bool>("is_training") || c.attr<float>("exponential_avg_factor") != 1.f)
    MG_RETURN_IF_ERROR(MergeVectors(c, {3, 4}, &channels));
  x.set_dim(channel, channels);
  c.set_output(0, x);
  for (int i = 1; i < 5; ++i) c.set_output(i, PartialShape{channels});
  if (c.num_outputs() > 5) c.set_output(5, PartialShape(Shape()));
  return Status();
}

Status BackwardShape(ShapeContext& c) {
  int channel = 0;
  MG_ASSIGN_OR_RETURN(const PartialShape dy, Images(c, 0, &channel));
  MG_ASSIGN_OR_RETURN(PartialShape x, Images(c, 1, &channel));
  MG_ASSIGN_OR_RETURN(x, PartialShape::Merge(x, dy));
  int64_t channels = x.dim(channel);
  MG_RETURN_IF_ERROR(MergeVectors(c, {2, 3, 4}, &channels));
  x.set_dim(channel, channels);
  c.set_output(0, x);
  for (int i : {1, 2}) c.set_output(i, PartialShape{channels});
  for (int i : {3, 4}) c.set_output(i, PartialShape{0});
  for (int i = 5; i < c.num_outputs(); ++i) c.set_output(i, x);
  return Status();
}

Status ForwardGradient(GradientContext& c) {
  for (int i = 1; i < c.op().num_outputs(); ++i) {
    if (!c.gradient(i).valid()) continue;
    return Unimplemented("node '" + std::string(c.op().name()) +
                         "': a gradient through the statistics of a batch normalisation is not "
                         "supported, only one through y");
  }
  const bool training = c.attrs().Get<bool>("is_training");
  const std::string version =
      c.scope().graph()->op(c.op().id).name().substr(std::string_view("FusedBatchNorm").size());
  OpBuilder gradient(c.scope(), "FusedBatchNormGrad" + version);
  gradient.Input(c.grad(0))
      .Input(c.input(0))
      .Input(c.input(1))
      .Input(training ? c.output(3) : c.input(3))
      .Input(training ? c.output(4) : c.input(4));
  if (c.op().num_outputs() > 5) gradient.Input(c.output(5));
  const Operation built = gradient.Attr("epsilon", AttrValue(c.attrs().Get<float>("epsilon")))
                              .Attr("data_format", c.attrs().Get<std::string>("data_format"))
                              .Attr("is_training", AttrValue(training))
                              .Build();
  for (int i = 0; i < 3; ++i) c.set_grad(i, built.output(i));
  return Status();
}

// t, m, v, beta, gamma -> result; four dimensions, of which the last has the channels.
Status GlobalShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(PartialShape t, c.WithRank(0, 4));
  int64_t channels = t.dim(3);
  MG_RETURN_IF_ERROR(MergeVectors(c, {1, 2, 3, 4}, &channels));
  t.set_dim(3, channels);
  c.set_output(0, t);
  return Status();
}

// t, m, v, gamma, backprop -> dx, dm, dv, db, dg
Status GlobalGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(PartialShape t, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(t, PartialShape::Merge(t, c.input(4)));
  int64_t channels = t.dim(3);
  MG_RETURN_IF_ERROR(MergeVectors(c, {1, 2, 3}, &channels));
  t.set_dim(3, channels);
  c.set_output(0, t);
  for (int i = 1; i < 5; ++i) c.set_output(i, PartialShape{channels});
  return Status();
}

Status GlobalGradient(GradientContext& c) {
  const Operation gradient =
      OpBuilder(c.scope(), "BatchNormWithGlobalNormalizationGrad")
          .Input(c.input(0))
          .Input(c.input(1))
          .Input(c.input(2))
          .Input(c.input(4))
          .Input(c.grad(0))
          .Attr("variance_epsilon", AttrValue(c.attrs().Get<float>("variance_epsilon")))
          .Attr("scale_after_normalization",
                AttrValue(c.attrs().Get<bool>("scale_after_normalization")))
          .Build();
  for (int i = 0; i < 5; ++i) c.set_grad(i, gradient.output(i));
  return Status();
}

// The gradient of V1 and V2; their arguments are those of V3 without the third reserved one.
OpDef Backward(const char* name, const std::string& vector) {
  OpDef def(name);
  def.Input("y_backprop: T").Input("x: T");
  def.Input(vector == "T" ? "scale: T" : "scale: float");
  for (const char* in : {"reserve_space_1", "reserve_space_2"}) def.Input(in + (": " + vector));
  def.Output("x_backprop: T");
  for (const char* out :
       {"scale_backprop", "offset_backprop", "reserve_space_3", "reserve_space_4"})
    def.Output(out + (": " + vector));
  return def.Shape(BackwardShape);
}
OpDef Forward(const char* name, const std::string& vector) {
  OpDef def(name);
  def.Input("x: T");
  for (const char* in : {"scale", "offset", "mean", "variance"}) def.Input(in + (": " + vector));
  def.Output("y: T");
  for (const char* out : {"batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"})
    def.Output(out + (": " + vector));
  def.Attr("exponential_avg_factor: float = 1.0");
  return def.Shape(ForwardShape).Gradient(ForwardGradient);
}

OpDef& AddAttrs(OpDef& def) {
  return def.Attr("T: {half, bfloat16, float}")
      .Attr("epsilon: float = 0.0001")
      .Attr("data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'")
      .Attr("is_training: bool = true");
}

}  // namespace

void Define(OpRegistry* registry) {
  OpDef forward("FusedBatchNormV3");
  forward.Input("x: T").Input("scale: U").Input("offset: U").Input("mean: U").Input("variance: U");
  forward.Output("y: T").Output("batch_mean: U").Output("batch_variance: U");
  forward.Output("reserve_space_1: U").Output("reserve_space_2: U").Output("reserve_space_3: U");
  forward.Attr("U: {bfloat16, float}").Attr("exponential_avg_factor: float = 1.0");
  registry->Add(AddAttrs(forward).Shape(ForwardShape).Gradient(ForwardGradient));

  OpDef backward("FusedBatchNormGradV3");
  backward.Input("y_backprop: T").Input("x: T").Input("scale: float");
  backward.Input("reserve_space_1: U").Input("reserve_space_2: U").Input("reserve_space_3: U");
  backward.Output("x_backprop: T").Output("scale_backprop: U").Output("offset_backprop: U");
  backward.Output("reserve_space_4: U").Output("reserve_space_5: U").Attr("U: {float}");
  registry->Add(AddAttrs(backward).Shape(BackwardShape));

  const auto older = [&](OpDef def, const char* types) {
    def.Attr(types);
    registry->Add(def.Attr("epsilon: float = 0.0001")
                      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
                      .Attr("is_training: bool = true"));
  };
  older(Forward("FusedBatchNorm", "T"), "T: {float}");
  older(Backward("FusedBatchNormGrad", "T"), "T: {float}");
  older(Forward("FusedBatchNormV2", "U").Attr("U: {float}"), "T: {half, bfloat16, float}");
  older(Backward("FusedBatchNormGradV2", "U").Attr("U: {float}"), "T: {half, bfloat16, float}");

  registry->Add(OpDef("BatchNormWithGlobalNormalization")
                    .Input("t: T")
                    .Input("m: T")
                    .Input("v: T")
                    .Input("beta: T")
                    .Input("gamma: T")
                    .Output("result: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("variance_epsilon: float")
                    .Attr("scale_after_normalization: bool")
                    .Shape(GlobalShape)
                    .Gradient(GlobalGradient));
  registry->Add(OpDef("BatchNormWithGlobalNormalizationGrad")
                    .Input("t: T")
                    .Input("m: T")
                    .Input("v: T")
                    .Input("gamma: T")
                    .Input("backprop: T")
                    .Output("dx: T")
                    .Output("dm: T")
                    .Output("dv: T")
                    .Output("db: T")
                    .Output("dg: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("variance_epsilon: float")
                    .Attr("scale_after_normalization: bool")
                    .Shape(GlobalGradShape));

  // What FuseOps makes on GPUs: y = activation(normalised x + side input), and its gradient. With
  // a side input the gradient of y is the sum of y_backprop and what is added, and the side input's
  // gradient is what of it passes the activation.
  OpDef fused("_FusedBatchNormEx");
  fused.Input("x: T").Input("scale: U").Input("offset: U").Input("mean: U").Input("variance: U");
  fused.Input("side_input: num_side_inputs * T");
  fused.Output("y: T").Output("batch_mean: U").Output("batch_variance: U");
  fused.Output("reserve_space_1: U").Output("reserve_space_2: U").Output("reserve_space_3: U");
  fused.Attr("U: {float}").Attr("exponential_avg_factor: float = 1.0");
  fused.Attr("num_side_inputs: int >= 0 = 0");
  fused.Attr("activation_mode: {'Identity', 'Relu'} = 'Identity'");
  registry->Add(AddAttrs(fused).Shape(ForwardShape));

  OpDef fused_backward("_FusedBatchNormGradEx");
  fused_backward.Input("y_backprop: T").Input("x: T").Input("scale: float");
  fused_backward.Input("reserve_space_1: U").Input("reserve_space_2: U");
  fused_backward.Input("reserve_space_3: U").Input("offset: float").Input("y: T");
  fused_backward.Input("added: num_added * T");
  fused_backward.Output("x_backprop: T").Output("scale_backprop: U").Output("offset_backprop: U");
  fused_backward.Output("reserve_space_4: U").Output("reserve_space_5: U");
  fused_backward.Output("side_input_backprop: num_side_inputs * T").Attr("U: {float}");
  fused_backward.Attr("num_side_inputs: int >= 0 = 0").Attr("num_added: int >= 0 = 0");
  fused_backward.Attr("activation_mode: {'Identity', 'Relu'} = 'Identity'");
  registry->Add(AddAttrs(fused_backward).Shape(BackwardShape));
}

}  // namespace ops::batch_norm
}  // namespace monograph
