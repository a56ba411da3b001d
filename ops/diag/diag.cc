// Functions, shape functions, gradients and definitions. TensorFlow has three versions of each
// Matrix op:
// the first one knows the main diagonal alone, the second one has `k`, the third one `align`. Their
// gradients are written with the third ones, whose alignment is then that of the second ones.
#include "ops/diag/diag.h"

#include <optional>
#include <vector>

#include "graph/gradients.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/diag/band.h"
#include "ops/dims.h"
#include "ops/types.h"

namespace monograph {

Output MatrixDiagPart(const Scope& scope, Output input, Output k, Output padding_value,
                      const std::string& align) {
  return OpBuilder(scope, "MatrixDiagPartV3")
      .Input(input)
      .Input(k)
      .Input(padding_value)
      .Attr("align", AttrValue(align))
      .BuildOutput();
}

Output MatrixDiag(const Scope& scope, Output diagonal, Output k, Output num_rows, Output num_cols,
                  Output padding_value, const std::string& align) {
  return OpBuilder(scope, "MatrixDiagV3")
      .Input(diagonal)
      .Input(k)
      .Input(num_rows)
      .Input(num_cols)
      .Input(padding_value)
      .Attr("align", AttrValue(align))
      .BuildOutput();
}

Output MatrixSetDiag(const Scope& scope, Output input, Output diagonal, Output k,
                     const std::string& align) {
  return OpBuilder(scope, "MatrixSetDiagV3")
      .Input(input)
      .Input(diagonal)
      .Input(k)
      .Attr("align", AttrValue(align))
      .BuildOutput();
}

Output MatrixBandPart(const Scope& scope, Output input, Output num_lower, Output num_upper) {
  return OpBuilder(scope, "MatrixBandPart")
      .Input(input)
      .Input(num_lower)
      .Input(num_upper)
      .BuildOutput();
}

Output Diag(const Scope& scope, const Output& diagonal) {
  return OpBuilder(scope, "Diag").Input(diagonal).BuildOutput();
}
Output DiagPart(const Scope& scope, const Output& input) {
  return OpBuilder(scope, "DiagPart").Input(input).BuildOutput();
}

namespace ops::diag {
namespace {

// Input i as k; 0 for an op that has no such input. No value: not known yet.
std::optional<std::vector<int64_t>> KOf(ShapeContext& c, int i) {
  return i < c.num_inputs() ? c.InputAsInts(i) : std::vector<int64_t>{0};
}

// All dimensions but the last `count`.
PartialShape Leading(const PartialShape& shape, int count) {
  return PartialShape(shape.dims().first(static_cast<size_t>(shape.rank() - count)));
}

Status NeedsRank(const PartialShape& shape, int least, const char* what) {
  if (!shape.known_rank() || shape.rank() >= least) return Status();
  return InvalidArgument(std::string(what) + " must have at least " + std::to_string(least) +
                         " dimensions, got shape " + shape.ToString());
}

// With the diagonals of `matrix` in the place of its last two dimensions; nothing is known without
// k.
Result<PartialShape> DiagonalsOf(ShapeContext& c, const PartialShape& matrix, int k_input) {
  MG_RETURN_IF_ERROR(NeedsRank(matrix, 2, "the input"));
  const auto k = KOf(c, k_input);
  if (!k || !matrix.known_rank()) return PartialShape();
  MG_ASSIGN_OR_RETURN(Band band, ParseBand(c.attrs(), *k));
  PartialShape out = Leading(matrix, 2);
  if (band.count() > 1) out.AddDim(band.count());
  band.rows = matrix.dim(matrix.rank() - 2), band.columns = matrix.dim(matrix.rank() - 1);
  const bool known = band.rows >= 0 && band.columns >= 0;
  if (known) MG_RETURN_IF_ERROR(CheckBand(band));
  out.AddDim(known ? band.longest() : -1);
  return out;
}

Status PartShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape out, DiagonalsOf(c, c.input(0), 1));
  c.set_output(0, out);
  return Status();
}

Status SetShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape diagonals, DiagonalsOf(c, c.input(0), 2));
  MG_RETURN_IF_ERROR(PartialShape::Merge(diagonals, c.input(1)).status());
  c.set_output(0, c.input(0));
  return Status();
}

Status DiagShape(ShapeContext& c) {
  const PartialShape& diagonal = c.input(0);
  MG_RETURN_IF_ERROR(NeedsRank(diagonal, 1, "the diagonal"));
  const auto k = KOf(c, 1);
  if (!k || !diagonal.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  MG_ASSIGN_OR_RETURN(Band band, ParseBand(c.attrs(), *k));
  const int own = band.count() > 1 ? 2 : 1;
  MG_RETURN_IF_ERROR(NeedsRank(diagonal, own, "a band of diagonals"));
  if (diagonal.rank() - own + 2 > kMaxRank) return TooManyDimensions();
  PartialShape out = Leading(diagonal, own);
  const int64_t longest = diagonal.dim(diagonal.rank() - 1);
  std::vector<int64_t> size{-1, -1};
  bool known = longest >= 0;
  for (int i : {0, 1}) {
    if (c.num_inputs() <= 2 + i) continue;
    const auto given = c.InputAsInts(2 + i);
    known = known && given && given->size() == 1;
    if (known) size[static_cast<size_t>(i)] = given->front();
  }
  if (known) MG_RETURN_IF_ERROR(SizeMatrix(&band, longest, size[0], size[1]));
  out.AddDim(known ? band.rows : -1);
  out.AddDim(known ? band.columns : -1);
  c.set_output(0, out);
  return Status();
}

Status BandPartShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(NeedsRank(c.input(0), 2, "the input"));
  for (int i : {1, 2}) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, c.input(0));
  return Status();
}

// What a node of any version says of its diagonals.
Output K(GradientContext& c, int i) {
  return i < c.num_inputs() ? c.input(i) : Const(c.scope(), 0);
}
std::string Align(GradientContext& c) { return c.attrs().GetOr<std::string>("align", "LEFT_LEFT"); }
Output Zero(GradientContext& c) { return ScalarConst(c.scope(), 0, c.grad(0).dtype()); }

Status DiagGradient(GradientContext& c) {
  c.set_grad(0, MatrixDiagPart(c.scope(), c.grad(0), K(c, 1), Zero(c), Align(c)));
  return Status();
}

Status PartGradient(GradientContext& c) {
  const Output zeros = ZerosLike(c.scope(), c.input(0));
  c.set_grad(0, MatrixSetDiag(c.scope(), zeros, c.grad(0), K(c, 1), Align(c)));
  return Status();
}

Status SetGradient(GradientContext& c) {
  const Output k = K(c, 2), zeros = ZerosLike(c.scope(), c.input(1));
  c.set_grad(0, MatrixSetDiag(c.scope(), c.grad(0), zeros, k, Align(c)));
  c.set_grad(1, MatrixDiagPart(c.scope(), c.grad(0), k, Zero(c), Align(c)));
  return Status();
}

Status BandPartGradient(GradientContext& c) {
  c.set_grad(0, MatrixBandPart(c.scope(), c.grad(0), c.input(1), c.input(2)));
  return Status();
}

Status TensorDiagShape(ShapeContext& c) {
  const PartialShape& diagonal = c.input(0);
  if (!diagonal.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (diagonal.rank() < 1 || 2 * diagonal.rank() > kMaxRank)
    return InvalidArgument("the diagonal must have 1 to 4 dimensions, not shape " +
                           diagonal.ToString());
  PartialShape shape = diagonal;
  for (int i = 0; i < diagonal.rank(); ++i) shape.AddDim(diagonal.dim(i));
  c.set_output(0, shape);
  return Status();
}

Status TensorDiagPartShape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (input.rank() < 2 || input.rank() % 2 != 0)
    return InvalidArgument("Input must have even and non-zero rank, not shape " + input.ToString());
  PartialShape first = PartialShape::Scalar(), second = first;
  for (int i = 0; i < input.rank() / 2; ++i) {
    first.AddDim(input.dim(i));
    second.AddDim(input.dim(i + input.rank() / 2));
  }
  MG_ASSIGN_OR_RETURN(const PartialShape both, PartialShape::Merge(first, second));
  c.set_output(0, both);
  return Status();
}

Status TensorDiagGradient(GradientContext& c) {
  c.set_grad(0, DiagPart(c.scope(), c.grad(0)));
  return Status();
}
Status TensorDiagPartGradient(GradientContext& c) {
  c.set_grad(0, Diag(c.scope(), c.grad(0)));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  for (int version : {1, 2, 3}) {
    const std::string suffix = version == 1 ? "" : "V" + std::to_string(version);
    const auto add = [&](OpDef def) {
      if (version == 3) {
        def.Attr("align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'");
      }
      registry->Add(def.Attr("T: type"));
    };
    OpDef diag("MatrixDiag" + suffix);
    diag.Input("diagonal: T").Output("output: T").Shape(DiagShape).Gradient(DiagGradient);
    if (version > 1) {
      diag.Input("k: int32").Input("num_rows: int32").Input("num_cols: int32");
      diag.Input("padding_value: T");
    }
    add(diag);
    OpDef part("MatrixDiagPart" + suffix);
    part.Input("input: T").Output("diagonal: T").Shape(PartShape).Gradient(PartGradient);
    if (version > 1) part.Input("k: int32").Input("padding_value: T");
    add(part);
    OpDef set("MatrixSetDiag" + suffix);
    set.Input("input: T").Input("diagonal: T").Output("output: T");
    set.Shape(SetShape).Gradient(SetGradient);
    if (version > 1) set.Input("k: int32");
    add(set);
  }
  registry->Add(OpDef("MatrixBandPart")
                    .Input("input: T")
                    .Input("num_lower: Tindex")
                    .Input("num_upper: Tindex")
                    .Output("band: T")
                    .Attr("T: type")
                    .Attr("Tindex: {int32, int64} = DT_INT64")
                    .Shape(BandPartShape)
                    .Gradient(BandPartGradient));
  for (const std::string name : {"Diag", "DiagPart", "SetDiag", "BandPart"})
    registry->AddOtherName("BatchMatrix" + name, "Matrix" + name);
  registry->Add(OpDef("Diag")
                    .Input("diagonal: T")
                    .Output("output: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Shape(TensorDiagShape)
                    .Gradient(TensorDiagGradient));
  registry->Add(OpDef("DiagPart")
                    .Input("input: T")
                    .Output("diagonal: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Shape(TensorDiagPartShape)
                    .Gradient(TensorDiagPartGradient));
}

}  // namespace ops::diag
}  // namespace monograph
