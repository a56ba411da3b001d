#include "ops/lrn/lrn.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"

namespace monograph {

Output LRN(const Scope& scope, Output input, const LRNOptions& options) {
  return OpBuilder(scope, "LRN")
      .Input(input)
      .Attr("depth_radius", AttrValue(options.depth_radius))
      .Attr("bias", AttrValue(options.bias))
      .Attr("alpha", AttrValue(options.alpha))
      .Attr("beta", AttrValue(options.beta))
      .BuildOutput();
}

namespace ops::lrn {
namespace {

Status LRNShape(ShapeContext& c) {
  PartialShape shape = PartialShape::UnknownOfRank(4);
  for (int i = 0; i < c.num_inputs(); ++i) {
    MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, c.input(i)));
  }
  c.set_output(0, shape);
  return Status();
}

Status LRNGradient(GradientContext& c) {
  const Attrs& a = c.attrs();
  c.set_grad(0, OpBuilder(c.scope(), "LRNGrad")
                    .Input(c.grad(0))
                    .Input(c.input(0))
                    .Input(c.output(0))
                    .Attr("depth_radius", AttrValue(a.Get<int64_t>("depth_radius")))
                    .Attr("bias", AttrValue(a.Get<float>("bias")))
                    .Attr("alpha", AttrValue(a.Get<float>("alpha")))
                    .Attr("beta", AttrValue(a.Get<float>("beta")))
                    .BuildOutput());
  return Status();
}

OpDef& AddAttrs(OpDef& def) {
  return def.Attr("depth_radius: int = 5")
      .Attr("bias: float = 1.0")
      .Attr("alpha: float = 1.0")
      .Attr("beta: float = 0.5")
      .Attr("T: {half, bfloat16, float} = DT_FLOAT")
      .Shape(LRNShape);
}

}  // namespace

void Define(OpRegistry* registry) {
  OpDef forward("LRN");
  forward.Input("input: T").Output("output: T").Gradient(LRNGradient);
  registry->Add(AddAttrs(forward));
  OpDef backward("LRNGrad");
  backward.Input("input_grads: T").Input("input_image: T").Input("output_image: T");
  backward.Output("output: T");
  registry->Add(AddAttrs(backward));
}

}  // namespace ops::lrn
}  // namespace monograph
