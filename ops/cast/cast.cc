#include "ops/cast/cast.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph {

Output Cast(const Scope& scope, const Output& x, DType dtype) {
  if (!x.valid() || x.dtype() == dtype) return x;
  return OpBuilder(scope, "Cast").Input(x).Attr("DstT", dtype).BuildOutput();
}

namespace ops::cast {
namespace {

Status CastGradient(GradientContext& c) {
  const DType from = c.attrs().Get<DType>("SrcT"), to = c.attrs().Get<DType>("DstT");
  if (IsFloating(from) && IsFloating(to)) c.set_grad(0, Cast(c.scope(), c.grad(0), from));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Cast")
                    .Input("x: SrcT")
                    .Output("y: DstT")
                    .Attr("SrcT: type")
                    .Attr("DstT: type")
                    .Attr("Truncate: bool = false")
                    .Shape(UnchangedShape)
                    .Gradient(CastGradient));
}

}  // namespace ops::cast
}  // namespace monograph
