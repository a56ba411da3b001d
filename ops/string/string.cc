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

Status MatchShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 0).status());
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
}

}  // namespace ops::string
}  // namespace monograph
