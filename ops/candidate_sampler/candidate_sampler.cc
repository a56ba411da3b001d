#include "ops/candidate_sampler/candidate_sampler.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/dims.h"

namespace monograph {
namespace {

CandidateSamples Sampler(const Scope& scope, std::string_view op, const Output& true_classes,
                         int64_t num_true, const CandidateSamplerOptions& options) {
  const Operation node = OpBuilder(scope, op)
                             .Input(true_classes)
                             .Attr("num_true", AttrValue(num_true))
                             .Attr("num_sampled", AttrValue(options.num_sampled))
                             .Attr("unique", AttrValue(options.unique))
                             .Attr("range_max", AttrValue(options.range_max))
                             .Attr("seed", AttrValue(scope.seed()))
                             .Attr("seed2", AttrValue(options.seed))
                             .Build();
  return {node.output(0), node.output(1), node.output(2)};
}

}  // namespace

CandidateSamples UniformCandidateSampler(const Scope& scope, const Output& true_classes,
                                         int64_t num_true, const CandidateSamplerOptions& options) {
  return Sampler(scope, "UniformCandidateSampler", true_classes, num_true, options);
}
CandidateSamples LogUniformCandidateSampler(const Scope& scope, const Output& true_classes,
                                            int64_t num_true,
                                            const CandidateSamplerOptions& options) {
  return Sampler(scope, "LogUniformCandidateSampler", true_classes, num_true, options);
}

AccidentalHits ComputeAccidentalHits(const Scope& scope, const Output& true_classes,
                                     const Output& sampled, int64_t num_true) {
  const Operation node = OpBuilder(scope, "ComputeAccidentalHits")
                             .Input(true_classes)
                             .Input(sampled)
                             .Attr("num_true", AttrValue(num_true))
                             .Build();
  return {node.output(0), node.output(1), node.output(2)};
}

namespace ops::candidate_sampler {
namespace {

Result<PartialShape> TrueClasses(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape classes, c.WithRank(0, 2));
  MG_ASSIGN_OR_RETURN(const int64_t columns, MergeDim(classes.dim(1), c.attr<int64_t>("num_true"),
                                                      "columns of true_classes and num_true"));
  return PartialShape{classes.dim(0), columns};
}

Status SampledShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape classes, TrueClasses(c));
  const PartialShape sampled{c.attr<int64_t>("num_sampled")};
  c.set_output(0, sampled);
  c.set_output(1, classes);
  c.set_output(2, sampled);
  return Status();
}

Status HitsShape(ShapeContext& c) {
  if (c.attr<int64_t>("num_true") < 0) return InvalidArgument("num_true must not be negative");
  MG_RETURN_IF_ERROR(TrueClasses(c).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  for (int i = 0; i < 3; ++i) c.set_output(i, PartialShape{-1});
  return Status();
}

OpDef SamplerDef(const char* name) {
  return OpDef(name)
      .Input("true_classes: int64")
      .Output("sampled_candidates: int64")
      .Output("true_expected_count: float")
      .Output("sampled_expected_count: float")
      .Attr("num_true: int >= 1")
      .Attr("num_sampled: int >= 1")
      .Attr("unique: bool")
      .Attr("seed: int = 0")
      .Attr("seed2: int = 0")
      .Stateful()
      .Shape(SampledShape)
      .NoGradient();
}

}  // namespace

void Define(OpRegistry* registry) {
  for (const char* name :
       {"UniformCandidateSampler", "LogUniformCandidateSampler", "LearnedUnigramCandidateSampler",
        "ThreadUnsafeUnigramCandidateSampler"}) {
    registry->Add(SamplerDef(name).Attr("range_max: int >= 1"));
  }
  registry->Add(SamplerDef("FixedUnigramCandidateSampler")
                    .Attr("range_max: int >= 1")
                    .Attr("vocab_file: string = ''")
                    .Attr("distortion: float = 1.0")
                    .Attr("num_reserved_ids: int = 0")
                    .Attr("num_shards: int >= 1 = 1")
                    .Attr("shard: int >= 0 = 0")
                    .Attr("unigrams: list(float) = []"));
  registry->Add(SamplerDef("AllCandidateSampler"));
  registry->Add(OpDef("ComputeAccidentalHits")
                    .Input("true_classes: int64")
                    .Input("sampled_candidates: int64")
                    .Output("indices: int32")
                    .Output("ids: int64")
                    .Output("weights: float")
                    .Attr("num_true: int")
                    .Attr("seed: int = 0")
                    .Attr("seed2: int = 0")
                    .Shape(HitsShape)
                    .NoGradient());
}

}  // namespace ops::candidate_sampler
}  // namespace monograph
