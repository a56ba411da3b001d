// Definitions of Transpose, Reverse and InvertPermutation. The shape of a transposition follows
// from the permutation where that is a constant; its gradient is the transposition by the inverse
// one, computed here where it can be. ConjugateTranspose is another op only for complex numbers.
#include "ops/transpose/transpose.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"

namespace monograph {

Output Transpose(const Scope& scope, const Output& x, const Output& perm) {
  return OpBuilder(scope, "Transpose").Input(x).Input(perm).BuildOutput();
}

Output Transpose(const Scope& scope, const Output& x, std::initializer_list<int64_t> perm) {
  return Transpose(scope, x, IntsConst(scope.WithOpName("transpose/perm"), perm));
}

Output InvertPermutation(const Scope& scope, const Output& x) {
  return OpBuilder(scope, "InvertPermutation").Input(x).BuildOutput();
}

Output Reverse(const Scope& scope, const Output& tensor, const Output& axis) {
  return OpBuilder(scope, "ReverseV2").Input(tensor).Input(axis).BuildOutput();
}

namespace ops::transpose {
namespace {

Status TransposeShape(ShapeContext& c) {
  PartialShape input = c.input(0);
  MG_ASSIGN_OR_RETURN(const PartialShape perm_shape, c.WithRank(1, 1));
  const auto perm = c.InputAsInts(1);
  if (!input.known_rank() && perm_shape.dim(0) >= 0) {
    if (perm_shape.dim(0) > kMaxRank) return TooManyDimensions();
    input = PartialShape::UnknownOfRank(static_cast<int>(perm_shape.dim(0)));
  }
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (perm_shape.dim(0) >= 0 && perm_shape.dim(0) != input.rank()) {
    return InvalidArgument("perm has " + std::to_string(perm_shape.dim(0)) +
                           " entries for a tensor of rank " + std::to_string(input.rank()));
  }
  if (!perm) {
    c.set_output(0, PartialShape::UnknownOfRank(input.rank()));
    return Status();
  }
  PartialShape output = PartialShape::Scalar();
  std::array<bool, kMaxRank> seen{};
  for (int64_t axis : *perm) {
    MG_ASSIGN_OR_RETURN(const int from, NormalizeAxis(axis, input.rank()));
    if (seen[static_cast<size_t>(from)])
      return InvalidArgument("perm names dimension " + std::to_string(from) + " twice");
    seen[static_cast<size_t>(from)] = true;
    output.AddDim(input.dim(from));
  }
  c.set_output(0, output);
  return Status();
}

Status VectorUnchanged(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(0, 1));
  c.set_output(0, shape);
  return Status();
}

Status ReverseShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  if (const auto axes = c.InputAsInts(1); axes && c.input(0).known_rank()) {
    for (int64_t axis : *axes) MG_RETURN_IF_ERROR(NormalizeAxis(axis, c.input(0).rank()).status());
  }
  c.set_output(0, c.input(0));
  return Status();
}

Status OldReverseShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape dims, c.WithRank(1, 1));
  if (c.input(0).known_rank() && dims.dim(0) >= 0 && dims.dim(0) != c.input(0).rank()) {
    return InvalidArgument("dims has " + std::to_string(dims.dim(0)) +
                           " entries for a tensor of rank " + std::to_string(c.input(0).rank()));
  }
  c.set_output(0, c.input(0));
  return Status();
}

Status TransposeGradient(GradientContext& c) {
  if (const auto perm = ConstInts(c.input(1))) {
    std::vector<int64_t> inverse(perm->size());
    const auto rank = static_cast<int64_t>(perm->size());
    for (size_t i = 0; i < perm->size(); ++i) {
      inverse[static_cast<size_t>(((*perm)[i] + rank) % rank)] = static_cast<int64_t>(i);
    }
    c.set_grad(0,
               Transpose(c.scope(), c.grad(0), IntsConst(c.scope().WithOpName("perm"), inverse)));
  } else {
    c.set_grad(0, Transpose(c.scope(), c.grad(0), InvertPermutation(c.scope(), c.input(1))));
  }
  return Status();
}

Status ReverseGradient(GradientContext& c) {
  c.set_grad(0, Reverse(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

Status OldReverseGradient(GradientContext& c) {
  c.set_grad(0, OpBuilder(c.scope(), "Reverse").Input(c.grad(0)).Input(c.input(1)).BuildOutput());
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  // Where there are no complex numbers both are the same.
  for (const char* const name : {"Transpose", "ConjugateTranspose"}) {
    registry->Add(OpDef(name)
                      .Input("x: T")
                      .Input("perm: Tperm")
                      .Output("y: T")
                      .Attr("T: type")
                      .Attr("Tperm: {int32, int64} = DT_INT32")
                      .Shape(TransposeShape)
                      .Gradient(TransposeGradient));
  }
  registry->Add(OpDef("InvertPermutation")
                    .Input("x: T")
                    .Output("y: T")
                    .Attr("T: {int32, int64} = DT_INT32")
                    .Shape(VectorUnchanged)
                    .NoGradient());
  registry->Add(OpDef("Reverse")
                    .Input("tensor: T")
                    .Input("dims: bool")
                    .Output("output: T")
                    .Attr("T: type")
                    .Shape(OldReverseShape)
                    .Gradient(OldReverseGradient));
  registry->Add(OpDef("ReverseV2")
                    .Input("tensor: T")
                    .Input("axis: Tidx")
                    .Output("output: T")
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Attr("T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, "
                          "bfloat16, half, float, "
                          "double, complex64, complex128, string}")
                    .Shape(ReverseShape)
                    .Gradient(ReverseGradient));
}

}  // namespace ops::transpose
}  // namespace monograph
