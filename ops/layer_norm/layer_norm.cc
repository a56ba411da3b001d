#include "ops/layer_norm/layer_norm.h"

#include <vector>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {

Output LayerNorm(const Scope& scope, const Output& x, const Output& scale, const Output& offset,
                 float epsilon) {
  return OpBuilder(scope, "_FusedLayerNorm")
      .Input(x)
      .Input(scale)
      .Input(offset)
      .Attr("epsilon", AttrValue(epsilon))
      .BuildOutput();
}

namespace ops::layer_norm {
namespace {

// The width that x and the vectors [begin, end) have together.
Result<int64_t> Width(const ShapeContext& c, const PartialShape& x, int begin, int end) {
  int64_t width = x.known_rank() ? x.dim(x.rank() - 1) : -1;
  for (int i = begin; i < end; ++i) {
    MG_ASSIGN_OR_RETURN(const PartialShape vector, c.WithRank(i, 1));
    MG_ASSIGN_OR_RETURN(width, MergeDim(width, vector.dim(0), "the last dimension and a vector"));
  }
  return width;
}
Status CheckRank(const PartialShape& x) {
  if (x.known_rank() && x.rank() == 0)
    return InvalidArgument("x needs at least one dimension, got a scalar");
  return Status();
}

Status LayerNormShape(ShapeContext& c) {
  const PartialShape x = c.input(0);
  MG_RETURN_IF_ERROR(CheckRank(x));
  MG_RETURN_IF_ERROR(Width(c, x, 1, 3).status());
  PartialShape rows;
  if (x.known_rank()) {
    const auto dims = x.dims();
    rows = PartialShape(std::vector<int64_t>(dims.begin(), dims.end() - 1));
  }
  c.set_output(0, x);
  c.set_output(1, rows);
  c.set_output(2, rows);
  return Status();
}

Status LayerNormGradShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(CheckRank(c.input(1)));
  MG_ASSIGN_OR_RETURN(const int64_t width, Width(c, c.input(1), 2, 3));
  c.set_output(0, c.input(1));
  c.set_output(1, {width});
  c.set_output(2, {width});
  return Status();
}

Status LayerNormGradient(GradientContext& c) {
  if (!c.grad(0).valid()) return Status();  // of the statistics alone, which are for the gradient
  const Operation gradients = OpBuilder(c.scope(), "_FusedLayerNormGrad")
                                  .Input(c.grad(0))
                                  .Input(c.input(0))
                                  .Input(c.input(1))
                                  .Input(c.output(1))
                                  .Input(c.output(2))
                                  .Build();
  for (int i = 0; i < 3; ++i) c.set_grad(i, gradients.output(i));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("_FusedLayerNorm")
                    .Input("x: T")
                    .Input("scale: float")
                    .Input("offset: float")
                    .Output("y: T")
                    .Output("mean: float")
                    .Output("inverse: float")
                    .Attr("T: {half, bfloat16, float}")
                    .Attr("epsilon: float")
                    .Shape(LayerNormShape)
                    .Gradient(LayerNormGradient));
  registry->Add(OpDef("_FusedLayerNormGrad")
                    .Input("gradient: T")
                    .Input("x: T")
                    .Input("scale: float")
                    .Input("mean: float")
                    .Input("inverse: float")
                    .Output("x_gradient: T")
                    .Output("scale_gradient: float")
                    .Output("offset_gradient: float")
                    .Attr("T: {half, bfloat16, float}")
                    .Shape(LayerNormGradShape));
}

}  // namespace ops::layer_norm
}  // namespace monograph
