// FractionalMaxPool and FractionalAvgPool: functions, shapes, gradients and definitions.
#include "ops/pool/fractional_pool.h"

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/pool/pool.h"
#include "ops/shape/shape.h"

namespace monograph {
namespace {

FractionalPoolOutputs Build(const Scope& scope, const char* op, const Output& value,
                            const std::vector<float>& pooling_ratio,
                            const FractionalPoolOptions& options) {
  const Operation node = OpBuilder(scope, op)
                             .Input(value)
                             .Attr("pooling_ratio", AttrValue(pooling_ratio))
                             .Attr("pseudo_random", options.pseudo_random)
                             .Attr("overlapping", options.overlapping)
                             .Attr("deterministic", options.deterministic)
                             .Attr("seed", AttrValue(options.seed))
                             .Attr("seed2", AttrValue(options.seed2))
                             .Build();
  return {node.output(0), node.output(1), node.output(2)};
}

}  // namespace

FractionalPoolOutputs FractionalMaxPool(const Scope& scope, const Output& value,
                                        const std::vector<float>& pooling_ratio,
                                        const FractionalPoolOptions& options) {
  return Build(scope, "FractionalMaxPool", value, pooling_ratio, options);
}

FractionalPoolOutputs FractionalAvgPool(const Scope& scope, const Output& value,
                                        const std::vector<float>& pooling_ratio,
                                        const FractionalPoolOptions& options) {
  return Build(scope, "FractionalAvgPool", value, pooling_ratio, options);
}

namespace ops::pool {
namespace {

template <bool kMax>
Status PooledShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(PartialShape shape, c.WithRank(0, 4));
  const auto& ratios = c.attr<std::vector<float>>("pooling_ratio");
  MG_RETURN_IF_ERROR(CheckPoolingRatios(ratios, kMax));
  for (int d = 0; d < 4; ++d) {
    if (shape.dim(d) >= 0)
      shape.set_dim(d, FractionOf(shape.dim(d), ratios[static_cast<size_t>(d)]));
  }
  c.set_output(0, shape);
  for (const int d : {1, 2})
    c.set_output(d, PartialShape{shape.dim(d) < 0 ? -1 : shape.dim(d) + 1});
  return Status();
}

Status MaxGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(0, 4));
  c.set_output(0, shape);
  return Status();
}

Status AverageGradShape(ShapeContext& c) {
  const auto dims = c.InputAsInts(0);
  c.set_output(0, dims ? PartialShape(*dims) : PartialShape{-1, -1, -1, -1});
  return Status();
}

Status MaxGradient(GradientContext& c) {
  if (!c.grad(0).valid()) return Status();
  c.set_grad(0, OpBuilder(c.scope(), "FractionalMaxPoolGrad")
                    .Input(c.input(0))
                    .Input(c.output(0))
                    .Input(c.grad(0))
                    .Input(c.output(1))
                    .Input(c.output(2))
                    .Attr("overlapping", c.attrs().Get<bool>("overlapping"))
                    .BuildOutput());
  return Status();
}

Status AverageGradient(GradientContext& c) {
  if (!c.grad(0).valid()) return Status();
  c.set_grad(0, OpBuilder(c.scope(), "FractionalAvgPoolGrad")
                    .Input(ShapeOf(c.scope(), c.input(0), DT_INT64))
                    .Input(c.grad(0))
                    .Input(c.output(1))
                    .Input(c.output(2))
                    .Attr("overlapping", c.attrs().Get<bool>("overlapping"))
                    .BuildOutput());
  return Status();
}

OpDef Pool(const char* name) {
  return OpDef(name)
      .Input("value: T")
      .Output("output: T")
      .Output("row_pooling_sequence: int64")
      .Output("col_pooling_sequence: int64")
      .Attr("pooling_ratio: list(float) >= 4")
      .Attr("pseudo_random: bool = false")
      .Attr("overlapping: bool = false")
      .Attr("deterministic: bool = false")
      .Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Attr("T: {float, double, int32, int64}")
      .Stateful();
}

OpDef Grad(OpDef op) {
  return op.Input("out_backprop: T")
      .Input("row_pooling_sequence: int64")
      .Input("col_pooling_sequence: int64")
      .Output("output: T")
      .Attr("overlapping: bool = false")
      .Attr("T: {float, double, int32, int64}");
}

}  // namespace

void DefineFractional(OpRegistry* registry) {
  registry->Add(Pool("FractionalMaxPool").Shape(PooledShape<true>).Gradient(MaxGradient));
  registry->Add(Pool("FractionalAvgPool").Shape(PooledShape<false>).Gradient(AverageGradient));
  registry->Add(Grad(OpDef("FractionalMaxPoolGrad").Input("orig_input: T").Input("orig_output: T"))
                    .Shape(MaxGradShape));
  registry->Add(Grad(OpDef("FractionalAvgPoolGrad").Input("orig_input_tensor_shape: int64"))
                    .Shape(AverageGradShape));
}

}  // namespace ops::pool
}  // namespace monograph
