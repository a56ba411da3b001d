#include "ops/unique/unique.h"

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

UniqueResult Unique(const Scope& scope, const Output& x, DType out_idx) {
  const Operation node = OpBuilder(scope, "Unique").Input(x).Attr("out_idx", out_idx).Build();
  return {node.output(0), node.output(1)};
}

ListDiffResult ListDiff(const Scope& scope, const Output& x, const Output& y, DType out_idx) {
  const Operation node =
      OpBuilder(scope, "ListDiff").Input(x).Input(y).Attr("out_idx", out_idx).Build();
  return {node.output(0), node.output(1)};
}

namespace ops::unique {
namespace {

Status UniqueShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(0, 1));
  c.set_output(0, PartialShape{-1});
  c.set_output(1, x);
  return Status();
}

Status ListDiffShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, PartialShape{-1});
  c.set_output(1, PartialShape{-1});
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Unique")
                    .Input("x: T")
                    .Output("y: T")
                    .Output("idx: out_idx")
                    .Attr("T: type")
                    .Attr("out_idx: {int32, int64} = DT_INT32")
                    .Shape(UniqueShape)
                    .NoGradient());
  registry->Add(OpDef("ListDiff")
                    .Input("x: T")
                    .Input("y: T")
                    .Output("out: T")
                    .Output("idx: out_idx")
                    .Attr("T: type")
                    .Attr("out_idx: {int32, int64} = DT_INT32")
                    .Shape(ListDiffShape)
                    .NoGradient());
}

}  // namespace ops::unique
}  // namespace monograph
