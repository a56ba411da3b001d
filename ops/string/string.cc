#include "ops/string/string.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output StringJoin(const Scope& scope, const Outputs& inputs, const std::string& separator) {
  return OpBuilder(scope, "StringJoin")
      .Inputs(inputs)
      .Attr("separator", AttrValue(separator))
      .BuildOutput();
}

Output RegexFullMatch(const Scope& scope, Output input, const std::string& pattern) {
  return OpBuilder(scope, "StaticRegexFullMatch")
      .Input(input)
      .Attr("pattern", pattern)
      .BuildOutput();
}

Output RegexReplace(const Scope& scope, const Output& input, const std::string& pattern,
                    const std::string& rewrite, bool replace_global) {
  return OpBuilder(scope, "StaticRegexReplace")
      .Input(input)
      .Attr("pattern", pattern)
      .Attr("rewrite", rewrite)
      .Attr("replace_global", replace_global)
      .BuildOutput();
}

Output StringToHashBucketFast(const Scope& scope, const Output& input, int64_t num_buckets) {
  return OpBuilder(scope, "StringToHashBucketFast")
      .Input(input)
      .Attr("num_buckets", num_buckets)
      .BuildOutput();
}

Output StringToHashBucketStrong(const Scope& scope, const Output& input, int64_t num_buckets,
                                const std::array<int64_t, 2>& key) {
  return OpBuilder(scope, "StringToHashBucketStrong")
      .Input(input)
      .Attr("num_buckets", num_buckets)
      .Attr("key", AttrValue(std::vector<int64_t>(key.begin(), key.end())))
      .BuildOutput();
}

namespace ops::string {
namespace {

Status JoinShape(ShapeContext& c) {
  PartialShape shape = PartialShape::Scalar();
  bool unknown = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& input = c.input(i);
    if (!input.known_rank()) {
      unknown = true;
    } else if (input.rank() > 0) {
      if (shape.rank() == 0) {
        shape = input;
      } else {
        MG_ASSIGN_OR_RETURN(shape, PartialShape::Merge(shape, input));
      }
    }
  }
  c.set_output(0, unknown && shape.rank() == 0 ? PartialShape() : shape);
  return Status();
}

// As input 0; all others are scalars.
Status MatchShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, c.input(0));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("StringJoin")
                    .Attr("N: int >= 0")
                    .Attr("separator: string = ''")
                    .Input("inputs: N * string")
                    .Output("output: string")
                    .NoGradient()
                    .Shape(JoinShape));
  registry->Add(OpDef("StaticRegexFullMatch")
                    .Input("input: string")
                    .Output("output: bool")
                    .Attr("pattern: string")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("RegexFullMatch")
                    .Input("input: string")
                    .Input("pattern: string")
                    .Output("output: bool")
                    .NoGradient()
                    .Shape(MatchShape));
  registry->Add(OpDef("StaticRegexReplace")
                    .Input("input: string")
                    .Output("output: string")
                    .Attr("pattern: string")
                    .Attr("rewrite: string")
                    .Attr("replace_global: bool = true")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("RegexReplace")
                    .Input("input: string")
                    .Input("pattern: string")
                    .Input("rewrite: string")
                    .Output("output: string")
                    .Attr("replace_global: bool = true")
                    .NoGradient()
                    .Shape(MatchShape));
  registry->Add(OpDef("StringToHashBucketFast")
                    .Input("input: string")
                    .Output("output: int64")
                    .Attr("num_buckets: int >= 1")
                    .NoGradient()
                    .Shape(UnchangedShape));
  registry->Add(OpDef("StringToHashBucketStrong")
                    .Input("input: string")
                    .Output("output: int64")
                    .Attr("num_buckets: int >= 1")
                    .Attr("key: list(int)")
                    .NoGradient()
                    .Shape(UnchangedShape));
}

}  // namespace ops::string
}  // namespace monograph
