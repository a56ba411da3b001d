#include "ops/bias/bias.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {

Output BiasAdd(const Scope& scope, Output value, Output bias, const std::string& data_format) {
  return OpBuilder(scope, "BiasAdd")
      .Input(value)
      .Input(bias)
      .Attr("data_format", AttrValue(data_format))
      .BuildOutput();
}

Output BiasAddGrad(const Scope& scope, Output out_backprop, const std::string& data_format) {
  return OpBuilder(scope, "BiasAddGrad")
      .Input(out_backprop)
      .Attr("data_format", AttrValue(data_format))
      .BuildOutput();
}

namespace ops::bias {
namespace {

// The channel dimension, or an error for a rank that has none.
Result<int> ChannelDim(ShapeContext& c) {
  const int rank = c.input(0).rank();
  const bool nchw = c.attrs().GetOr<std::string>("data_format", "NHWC") == "NCHW";
  if (rank < 2)
    return InvalidArgument("the value needs at least 2 dimensions, got shape " +
                           c.input(0).ToString());
  return nchw ? 1 : rank - 1;
}

Status BiasAddShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape bias, c.WithRank(1, 1));
  PartialShape out = c.input(0);
  if (out.known_rank()) {
    MG_ASSIGN_OR_RETURN(const int channel, ChannelDim(c));
    MG_ASSIGN_OR_RETURN(
        const int64_t size,
        MergeDim(out.dim(channel), bias.dim(0), "channels of the value and length of the bias"));
    out.set_dim(channel, size);
  }
  c.set_output(0, out);
  return Status();
}

Status BiasAddGradShape(ShapeContext& c) {
  int64_t size = -1;
  if (c.input(0).known_rank()) {
    MG_ASSIGN_OR_RETURN(const int channel, ChannelDim(c));
    size = c.input(0).dim(channel);
  }
  c.set_output(0, PartialShape{size});
  return Status();
}

Status BiasAddGradient(GradientContext& c) {
  c.set_grad(0, c.grad(0));
  c.set_grad(
      1, BiasAddGrad(c.scope(), c.grad(0), c.attrs().GetOr<std::string>("data_format", "NHWC")));
  return Status();
}

// The transpose of a sum repeats: the gradient of BiasAddGrad adds the incoming vector to a zero
// tensor of the value's shape.
Status BiasAddGradGradient(GradientContext& c) {
  const Output zeros = OpBuilder(c.scope(), "ZerosLike").Input(c.input(0)).BuildOutput();
  c.set_grad(0, BiasAdd(c.scope(), zeros, c.grad(0), c.attrs().Get<std::string>("data_format")));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("BiasAdd")
                    .Input("value: T")
                    .Input("bias: T")
                    .Output("output: T")
                    .Attr("T: {float, double, half, bfloat16, int32, int64}")
                    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
                    .Shape(BiasAddShape)
                    .Gradient(BiasAddGradient));
  registry->Add(OpDef("BiasAddV1")  // before data_format was
                    .Input("value: T")
                    .Input("bias: T")
                    .Output("output: T")
                    .Attr("T: {float, double, half, bfloat16, int32, int64}")
                    .Shape(BiasAddShape)
                    .Gradient(BiasAddGradient));
  registry->Add(OpDef("BiasAddGrad")
                    .Input("out_backprop: T")
                    .Output("output: T")
                    .Attr("T: {float, double, half, bfloat16, int32, int64}")
                    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
                    .Shape(BiasAddGradShape)
                    .Gradient(BiasAddGradGradient));
}

}  // namespace ops::bias
}  // namespace monograph
