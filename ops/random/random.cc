#include "ops/random/random.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"

namespace monograph {
namespace {

Output FloatOp(const Scope& scope, std::string_view op, const Output& shape, DType dtype,
               int64_t seed) {
  return OpBuilder(scope, op)
      .Input(shape)
      .Attr("seed", scope.seed())
      .Attr("seed2", seed)
      .Attr("dtype", dtype)
      .BuildOutput();
}

}  // namespace

Output RandomUniform(const Scope& scope, const Output& shape, DType dtype, int64_t seed) {
  return FloatOp(scope, "RandomUniform", shape, dtype, seed);
}

Output RandomNormal(const Scope& scope, const Output& shape, DType dtype, int64_t seed) {
  return FloatOp(scope, "RandomStandardNormal", shape, dtype, seed);
}

Output TruncatedNormal(const Scope& scope, const Output& shape, DType dtype, int64_t seed) {
  return FloatOp(scope, "TruncatedNormal", shape, dtype, seed);
}

Output RandomUniformInt(const Scope& scope, const Output& shape, const Output& minval,
                        const Output& maxval, int64_t seed) {
  return OpBuilder(scope, "RandomUniformInt")
      .Input(shape)
      .Input(minval)
      .Input(maxval)
      .Attr("seed", scope.seed())
      .Attr("seed2", seed)
      .BuildOutput();
}

Output Dropout(const Scope& scope, const Output& x, const Output& keep_prob, int64_t seed) {
  if (!x.valid() || !keep_prob.valid()) return {};
  const Scope s = scope.SubScope("dropout");
  const PartialShape known = x.shape();
  const Output shape =
      known.fully_known() ? IntsConst(s.WithOpName("Shape"), known.dims()) : ShapeOf(s, x);
  const Output drawn = RandomUniform(s.WithOpName("random_uniform"), shape, x.dtype(), seed);
  const Output kept = Less(s.WithOpName("keep"), drawn, keep_prob);
  const Output scaled = RealDiv(s.WithOpName("scale"), x, keep_prob);
  return Select(s.WithOpName("select"), kept, scaled,
                ScalarConst(s.WithOpName("zero"), 0, x.dtype()));
}

Output Dropout(const Scope& scope, const Output& x, double keep_prob, int64_t seed) {
  if (!x.valid()) return {};
  if (!(keep_prob > 0 && keep_prob <= 1)) {
    scope.Fail(InvalidArgument("Dropout: keep_prob is " + std::to_string(keep_prob) +
                               "; it must be in (0, 1]"));
    return {};
  }
  return Dropout(scope, x, ScalarConst(scope.WithOpName("keep_prob"), keep_prob, x.dtype()), seed);
}

namespace ops::random {
namespace {

Status RandomShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  for (int i = 1; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.set_output(0, shape);
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  for (const char* name : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    registry->Add(OpDef(name)
                      .Input("shape: T")
                      .Output("output: dtype")
                      .Attr("seed: int = 0")
                      .Attr("seed2: int = 0")
                      .Attr("dtype: {half, bfloat16, float, double}")
                      .Attr("T: {int32, int64}")
                      .Stateful()
                      .Shape(RandomShape)
                      .NoGradient());
  }
  registry->Add(OpDef("RandomUniformInt")
                    .Input("shape: T")
                    .Input("minval: Tout")
                    .Input("maxval: Tout")
                    .Output("output: Tout")
                    .Attr("seed: int = 0")
                    .Attr("seed2: int = 0")
                    .Attr("Tout: {int32, int64}")
                    .Attr("T: {int32, int64}")
                    .Stateful()
                    .Shape(RandomShape)
                    .NoGradient());
}

}  // namespace ops::random
}  // namespace monograph
