#include "ops/where/where.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output Where(const Scope& scope, const Output& condition) {
  return OpBuilder(scope, "Where").Input(condition).BuildOutput();
}

namespace ops::where {
namespace {

Status WhereShape(ShapeContext& c) {
  const PartialShape& condition = c.input(0);
  c.set_output(0, PartialShape{-1, condition.known_rank() ? condition.rank() : -1});
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Where")
                    .Input("input: T")
                    .Output("index: int64")
                    .Attr("T: type = DT_BOOL")
                    .Shape(WhereShape)
                    .NoGradient());
}

}  // namespace ops::where
}  // namespace monograph
