// Functions, shape functions and definitions: one op for each distribution. The stateless ops draw
// from their input `seed` alone; Multinomial and RandomShuffle are stateful and draw by seed, node
// and step (stateless_random_cpu.cc). None has a gradient.
#include "ops/stateless_random/stateless_random.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/types.h"

namespace monograph {
namespace {

Output FloatOp(const Scope& scope, const char* op, const Output& shape, const Output& seed,
               DType dtype) {
  return OpBuilder(scope, op)
      .Input(shape)
      .Input(seed)
      .Attr("dtype", AttrValue(dtype))
      .BuildOutput();
}

}  // namespace

Output StatelessRandomUniform(const Scope& scope, const Output& shape, const Output& seed,
                              DType dtype) {
  return FloatOp(scope, "StatelessRandomUniform", shape, seed, dtype);
}
Output StatelessRandomNormal(const Scope& scope, const Output& shape, const Output& seed,
                             DType dtype) {
  return FloatOp(scope, "StatelessRandomNormal", shape, seed, dtype);
}
Output StatelessTruncatedNormal(const Scope& scope, const Output& shape, const Output& seed,
                                DType dtype) {
  return FloatOp(scope, "StatelessTruncatedNormal", shape, seed, dtype);
}
Output StatelessRandomUniformInt(const Scope& scope, const Output& shape, const Output& seed,
                                 const Output& minval, const Output& maxval) {
  return OpBuilder(scope, "StatelessRandomUniformInt")
      .Input(shape)
      .Input(seed)
      .Input(minval)
      .Input(maxval)
      .BuildOutput();
}

Output RandomShuffle(const Scope& scope, const Output& value, int64_t seed) {
  return OpBuilder(scope, "RandomShuffle")
      .Input(value)
      .Attr("seed", AttrValue(scope.seed()))
      .Attr("seed2", AttrValue(seed))
      .BuildOutput();
}

Output Multinomial(const Scope& scope, const Output& logits, const Output& num_samples,
                   int64_t seed, DType output_dtype) {
  return OpBuilder(scope, "Multinomial")
      .Input(logits)
      .Input(num_samples)
      .Attr("seed", AttrValue(scope.seed()))
      .Attr("seed2", AttrValue(seed))
      .Attr("output_dtype", AttrValue(output_dtype))
      .BuildOutput();
}

namespace ops::stateless_random {
namespace {

Status CheckSeed(ShapeContext& c, int input) {
  MG_ASSIGN_OR_RETURN(const PartialShape seed, c.WithRank(input, 1));
  if (seed.dim(0) < 0 || seed.dim(0) == 2) return Status();
  return InvalidArgument("seed must have shape [2], not " + seed.ToString());
}

Status DrawnShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_RETURN_IF_ERROR(CheckSeed(c, 1));
  for (int i = 2; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.set_output(0, shape);
  return Status();
}

Status SamplesShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape logits, c.WithRank(0, 2));
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  if (c.num_inputs() > 2) MG_RETURN_IF_ERROR(CheckSeed(c, 2));
  const auto values = c.InputAsInts(1);
  const bool known = values && values->size() == 1;  // other sizes are refused by the kernel
  const int64_t samples = known ? values->front() : -1;
  if (known && samples < 0)
    return InvalidArgument("num_samples should be nonnegative, got " + std::to_string(samples));
  c.set_output(0, PartialShape{logits.dim(0), samples});
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  for (const char* name :
       {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"}) {
    registry->Add(OpDef(name)
                      .Input("shape: T")
                      .Input("seed: Tseed")
                      .Output("output: dtype")
                      .Attr("dtype: {half, bfloat16, float, double} = DT_FLOAT")
                      .Attr("T: {int32, int64} = DT_INT32")
                      .Attr("Tseed: {int32, int64} = DT_INT64")
                      .Shape(DrawnShape)
                      .NoGradient());
  }
  registry->Add(OpDef("StatelessRandomUniformInt")
                    .Input("shape: T")
                    .Input("seed: Tseed")
                    .Input("minval: dtype")
                    .Input("maxval: dtype")
                    .Output("output: dtype")
                    .Attr("dtype: {int32, int64}")
                    .Attr("T: {int32, int64}")
                    .Attr("Tseed: {int32, int64} = DT_INT64")
                    .Shape(DrawnShape)
                    .NoGradient());
  registry->Add(OpDef("StatelessRandomUniformFullInt")
                    .Input("shape: T")
                    .Input("seed: Tseed")
                    .Output("output: dtype")
                    .Attr("dtype: {int32, int64, uint32, uint64} = DT_UINT64")
                    .Attr("T: {int32, int64} = DT_INT32")
                    .Attr("Tseed: {int32, int64} = DT_INT64")
                    .Shape(DrawnShape)
                    .NoGradient());
  registry->Add(OpDef("StatelessMultinomial")
                    .Input("logits: T")
                    .Input("num_samples: int32")
                    .Input("seed: Tseed")
                    .Output("output: output_dtype")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .Attr("Tseed: {int32, int64} = DT_INT64")
                    .Attr("output_dtype: {int32, int64} = DT_INT64")
                    .Shape(SamplesShape)
                    .NoGradient());
  registry->Add(OpDef("Multinomial")
                    .Input("logits: T")
                    .Input("num_samples: int32")
                    .Output("output: output_dtype")
                    .Attr("seed: int = 0")
                    .Attr("seed2: int = 0")
                    .Attr("T: " MG_OP_REAL_TYPES)
                    .Attr("output_dtype: {int32, int64} = DT_INT64")
                    .Stateful()
                    .Shape(SamplesShape)
                    .NoGradient());
  registry->Add(OpDef("RandomShuffle")
                    .Input("value: T")
                    .Output("output: T")
                    .Attr("seed: int = 0")
                    .Attr("seed2: int = 0")
                    .Attr("T: type")
                    .Stateful()
                    .Shape(UnchangedShape)
                    .NoGradient());
}

}  // namespace ops::stateless_random
}  // namespace monograph
