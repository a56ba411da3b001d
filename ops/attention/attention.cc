#include "ops/attention/attention.h"

#include <string>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {

Output Attention(const Scope& scope, const Output& query, const Output& key, const Output& value,
                 float scale, const AttentionMask& mask) {
  Outputs lengths;
  if (mask.lengths.valid()) lengths.push_back(mask.lengths);
  return OpBuilder(scope, "_FusedAttention")
      .Input(query)
      .Input(key)
      .Input(value)
      .Inputs(lengths)
      .Attr("scale", AttrValue(scale))
      .Attr("causal", AttrValue(mask.causal))
      .BuildOutput();
}

namespace ops::attention {
namespace {

// query, key, value and lengths, which come behind `others` inputs: that they fit, and what is
// known of them together.
struct Known {
  PartialShape query, key;
};
Result<Known> Merged(const ShapeContext& c, int others) {
  MG_ASSIGN_OR_RETURN(const PartialShape q, c.WithRank(0, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape k, c.WithRank(1, 4));
  MG_ASSIGN_OR_RETURN(const PartialShape v, c.WithRank(2, 4));
  const auto merge = [&](int i, const char* what) -> Result<int64_t> {
    MG_ASSIGN_OR_RETURN(const int64_t dim, MergeDim(q.dim(i), k.dim(i), what));
    return MergeDim(dim, v.dim(i), what);
  };
  MG_ASSIGN_OR_RETURN(int64_t n, merge(0, "sequences of query, key and value"));
  MG_ASSIGN_OR_RETURN(const int64_t heads, merge(2, "heads of query, key and value"));
  MG_ASSIGN_OR_RETURN(const int64_t size, merge(3, "sizes of query, key and value"));
  MG_ASSIGN_OR_RETURN(const int64_t columns,
                      MergeDim(k.dim(1), v.dim(1), "lengths of key and value"));
  if (c.num_inputs() > others + 1) {
    return InvalidArgument("num_lengths must be 0 or 1, not " +
                           std::to_string(c.num_inputs() - others));
  }
  if (c.num_inputs() > others) {
    MG_ASSIGN_OR_RETURN(const PartialShape lengths, c.WithRank(others, 1));
    MG_ASSIGN_OR_RETURN(n, MergeDim(n, lengths.dim(0), "sequences and lengths"));
  }
  return Known{{n, q.dim(1), heads, size}, {n, columns, heads, size}};
}

Status AttentionShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known known, Merged(c, 3));
  c.set_output(0, known.query);
  c.set_output(1, {known.query.dim(0), known.query.dim(2), known.query.dim(1)});
  return Status();
}

Status AttentionGradShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const Known known, Merged(c, 6));
  c.set_output(0, known.query);
  c.set_output(1, known.key);
  c.set_output(2, known.key);
  return Status();
}

Status AttentionGradient(GradientContext& c) {
  if (!c.grad(0).valid()) return Status();  // of the statistics alone, which are for the gradient
  Outputs lengths;
  if (c.num_inputs() > 3) lengths.push_back(c.input(3));
  const Operation gradients = OpBuilder(c.scope(), "_FusedAttentionGrad")
                                  .Input(c.input(0))
                                  .Input(c.input(1))
                                  .Input(c.input(2))
                                  .Input(c.output(0))
                                  .Input(c.output(1))
                                  .Input(c.grad(0))
                                  .Inputs(lengths)
                                  .Attr("scale", AttrValue(c.attrs().Get<float>("scale")))
                                  .Attr("causal", AttrValue(c.attrs().Get<bool>("causal")))
                                  .Build();
  for (int i = 0; i < 3; ++i) c.set_grad(i, gradients.output(i));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("_FusedAttention")
                    .Input("query: T")
                    .Input("key: T")
                    .Input("value: T")
                    .Input("lengths: num_lengths * int32")
                    .Output("output: T")
                    .Output("statistics: float")
                    .Attr("T: {half, bfloat16, float}")
                    .Attr("scale: float")
                    .Attr("num_lengths: int >= 0 = 0")
                    .Attr("causal: bool = false")
                    .Shape(AttentionShape)
                    .Gradient(AttentionGradient));
  registry->Add(OpDef("_FusedAttentionGrad")
                    .Input("query: T")
                    .Input("key: T")
                    .Input("value: T")
                    .Input("output: T")
                    .Input("statistics: float")
                    .Input("gradient: T")
                    .Input("lengths: num_lengths * int32")
                    .Output("query_gradient: T")
                    .Output("key_gradient: T")
                    .Output("value_gradient: T")
                    .Attr("T: {half, bfloat16, float}")
                    .Attr("scale: float")
                    .Attr("num_lengths: int >= 0 = 0")
                    .Attr("causal: bool = false")
                    .Shape(AttentionGradShape));
}

}  // namespace ops::attention
}  // namespace monograph
