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
  if (c.num_outputs() > 2) c.set_output(2, PartialShape{-1});
  return Status();
}

// Unique, UniqueWithCounts of vectors; with an axis (V2), of slices along it.
Status UniqueV2Shape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  PartialShape x = c.input(0);
  int64_t count = -1;
  if (const auto axis = c.InputAsInts(1); axis && x.known_rank()) {
    if (axis->size() > 1) return InvalidArgument("axis must have at most one element");
    if (axis->empty() && x.rank() != 1)
      return InvalidArgument("x must be a vector where no axis is given");
    MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis->empty() ? 0 : axis->front(), x.rank()));
    count = x.dim(at);
    x.set_dim(at, -1);
    c.set_output(0, x);
  } else {
    c.set_output(0, x.known_rank() ? PartialShape::UnknownOfRank(x.rank()) : PartialShape());
  }
  c.set_output(1, PartialShape{count});
  if (c.num_outputs() > 2) c.set_output(2, PartialShape{-1});
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
  registry->Add(OpDef("UniqueWithCounts")
                    .Input("x: T")
                    .Output("y: T")
                    .Output("idx: out_idx")
                    .Output("count: out_idx")
                    .Attr("T: type")
                    .Attr("out_idx: {int32, int64} = DT_INT32")
                    .Shape(UniqueShape)
                    .NoGradient());
  registry->Add(OpDef("UniqueV2")
                    .Input("x: T")
                    .Input("axis: Taxis")
                    .Output("y: T")
                    .Output("idx: out_idx")
                    .Attr("T: type")
                    .Attr("Taxis: {int32, int64} = DT_INT64")
                    .Attr("out_idx: {int32, int64} = DT_INT32")
                    .Shape(UniqueV2Shape)
                    .NoGradient());
  registry->Add(OpDef("UniqueWithCountsV2")
                    .Input("x: T")
                    .Input("axis: Taxis")
                    .Output("y: T")
                    .Output("idx: out_idx")
                    .Output("count: out_idx")
                    .Attr("T: type")
                    .Attr("Taxis: {int32, int64} = DT_INT64")
                    .Attr("out_idx: {int32, int64} = DT_INT32")
                    .Shape(UniqueV2Shape)
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
