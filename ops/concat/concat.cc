// Functions, shape functions, gradients and definitions. Joining and splitting are each other's
// gradients: Concat of Split and SplitV, Pack of Unpack, and the other way round. The gradient of a
// split needs those of all its outputs, so zeros stand for an output that has none (AllGradients).
#include "ops/concat/concat.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/constant/constant.h"
#include "ops/control/control.h"
#include "ops/dims.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"

namespace monograph {
namespace {

Outputs OutputsOf(const Operation& node, size_t count) {
  Outputs outputs;
  for (size_t i = 0; i < count; ++i) outputs.push_back(node.output(static_cast<int>(i)));
  return outputs;
}

}  // namespace

Output Concat(const Scope& scope, const Outputs& values, const Output& axis) {
  if (values.size() == 1) return Identity(scope, values[0]);
  return OpBuilder(scope, "ConcatV2").Inputs(values).Input(axis).BuildOutput();
}

Output Concat(const Scope& scope, const Outputs& values, int axis) {
  if (values.size() == 1) return Identity(scope, values[0]);
  return Concat(scope, values, Const(scope.WithOpName("concat/axis"), axis));
}

Outputs ConcatOffset(const Scope& scope, const Output& axis, const Outputs& shapes) {
  return OutputsOf(OpBuilder(scope, "ConcatOffset").Input(axis).Inputs(shapes).Build(),
                   shapes.size());
}

Outputs Split(const Scope& scope, const Output& value, int num_split, int axis) {
  const Output dim = Const(scope.WithOpName("split/split_dim"), axis);
  return OutputsOf(
      OpBuilder(scope, "Split").Input(dim).Input(value).Attr("num_split", num_split).Build(),
      static_cast<size_t>(std::max(num_split, 0)));
}

Outputs SplitV(const Scope& scope, const Output& value, const Output& sizes, const Output& axis,
               int num_split) {
  return OutputsOf(OpBuilder(scope, "SplitV")
                       .Input(value)
                       .Input(sizes)
                       .Input(axis)
                       .Attr("num_split", num_split)
                       .Build(),
                   static_cast<size_t>(std::max(num_split, 0)));
}

Outputs SplitV(const Scope& scope, const Output& value, std::span<const int64_t> sizes, int axis) {
  return SplitV(scope, value, IntsConst(scope.WithOpName("split/sizes"), sizes),
                Const(scope.WithOpName("split/split_dim"), axis), static_cast<int>(sizes.size()));
}

Output Pack(const Scope& scope, const Outputs& values, int axis) {
  return OpBuilder(scope, "Pack").Inputs(values).Attr("axis", axis).BuildOutput();
}

Outputs Unpack(const Scope& scope, const Output& value, int num, int axis) {
  return OutputsOf(
      OpBuilder(scope, "Unpack").Input(value).Attr("num", num).Attr("axis", axis).Build(),
      static_cast<size_t>(std::max(num, 0)));
}

namespace ops::concat {
namespace {

// Concat has the axis in front of the values, ConcatV2 behind them.
Status ConcatShapeOf(ShapeContext& c, int first, int axis_input) {
  const int n = c.num_inputs() - 1;
  MG_RETURN_IF_ERROR(c.WithRank(axis_input, 0).status());
  PartialShape all;
  for (int i = 0; i < n; ++i) {
    if (c.input(first + i).known_rank())
      all = PartialShape::UnknownOfRank(c.input(first + i).rank());
  }
  if (!all.known_rank()) {
    c.set_output(0, all);
    return Status();
  }
  for (int i = 0; i < n; ++i) {
    if (c.input(first + i).known_rank() && c.input(first + i).rank() != all.rank()) {
      return InvalidArgument("input " + std::to_string(i) + " has shape " +
                             c.input(first + i).ToString() + ", others have rank " +
                             std::to_string(all.rank()));
    }
  }
  if (all.rank() == 0) return InvalidArgument("scalars cannot be concatenated; pack them");
  const auto axis_value = c.InputAsInts(axis_input);
  if (!axis_value) {
    c.set_output(0, all);
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_value->front(), all.rank()));
  int64_t total = 0;
  for (int i = 0; i < n; ++i) {
    PartialShape shape = c.input(first + i).known_rank() ? c.input(first + i)
                                                         : PartialShape::UnknownOfRank(all.rank());
    if (total < 0 || shape.dim(axis) < 0) {
      total = -1;
    } else if (__builtin_add_overflow(total, shape.dim(axis), &total)) {
      return InvalidArgument("the result is too large");
    }
    shape.set_dim(axis, -1);
    auto merged = PartialShape::Merge(all, shape);
    if (!merged.ok()) {
      return InvalidArgument(
          "input " + std::to_string(i) + " has shape " + c.input(first + i).ToString() +
          ", which differs from the others outside of axis " + std::to_string(axis));
    }
    all = *merged;
  }
  all.set_dim(axis, total);
  c.set_output(0, all);
  return Status();
}

Status ConcatV2Shape(ShapeContext& c) { return ConcatShapeOf(c, 0, c.num_inputs() - 1); }
Status OldConcatShape(ShapeContext& c) { return ConcatShapeOf(c, 1, 0); }

Status ConcatOffsetShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  for (int i = 1; i < c.num_inputs(); ++i) {
    MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(i, 1));
    c.set_output(i - 1, shape);
  }
  return Status();
}

Status SplitShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  PartialShape shape = c.input(1);
  const auto axis_value = c.InputAsInts(0);
  const int64_t n = c.attr<int64_t>("num_split");
  if (shape.known_rank()) {
    if (axis_value) {
      MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_value->front(), shape.rank()));
      const int64_t size = shape.dim(axis);
      if (size >= 0 && size % n != 0) {
        return InvalidArgument("dimension " + std::to_string(axis) + " of " + shape.ToString() +
                               " cannot be split into " + std::to_string(n) + " equal parts");
      }
      shape.set_dim(axis, size < 0 ? -1 : size / n);
    } else {
      shape = PartialShape::UnknownOfRank(shape.rank());
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shape);
  return Status();
}

Status SplitVShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  PartialShape shape = c.input(0);
  const auto sizes = c.InputAsInts(1), axis_value = c.InputAsInts(2);
  const int n = c.num_outputs();
  if (sizes && static_cast<int>(sizes->size()) != n) {
    return InvalidArgument(std::to_string(sizes->size()) + " sizes were given for " +
                           std::to_string(n) + " parts");
  }
  if (!shape.known_rank()) {
    for (int i = 0; i < n; ++i) c.set_output(i, shape);
    return Status();
  }
  if (!axis_value) {
    for (int i = 0; i < n; ++i) c.set_output(i, PartialShape::UnknownOfRank(shape.rank()));
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_value->front(), shape.rank()));
  const int64_t whole = shape.dim(axis);
  int64_t sum = 0;
  int open = 0;
  if (sizes) {
    for (int64_t size : *sizes) {
      if (size < 0) {
        ++open;
      } else if (__builtin_add_overflow(sum, size, &sum)) {
        return InvalidArgument("the sum of the sizes does not fit in 63 bits");
      }
    }
    if (open > 1) return InvalidArgument("only one of the sizes may be -1");
    if (whole >= 0 && (open == 0 ? sum != whole : sum > whole)) {
      return InvalidArgument("the sizes add up to " + std::to_string(sum) + ", dimension " +
                             std::to_string(axis) + " of " + shape.ToString() + " to " +
                             std::to_string(whole));
    }
  }
  for (int i = 0; i < n; ++i) {
    int64_t size = sizes ? (*sizes)[static_cast<size_t>(i)] : -1;
    if (size < 0) size = sizes && whole >= 0 ? whole - sum : -1;
    shape.set_dim(axis, size);
    c.set_output(i, shape);
  }
  return Status();
}

Status PackShape(ShapeContext& c) {
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    auto merged = PartialShape::Merge(shape, c.input(i));
    if (!merged.ok()) {
      return InvalidArgument("input " + std::to_string(i) + " has shape " + c.input(i).ToString() +
                             ", the ones before it " + shape.ToString());
    }
    shape = *merged;
  }
  if (!shape.known_rank()) {
    c.set_output(0, shape);
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(c.attr<int64_t>("axis"), shape.rank() + 1));
  if (shape.rank() == kMaxRank) return TooManyDimensions();
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i <= shape.rank(); ++i)
    output.AddDim(i == axis ? c.num_inputs() : shape.dim(i < axis ? i : i - 1));
  c.set_output(0, output);
  return Status();
}

Status UnpackShape(ShapeContext& c) {
  const PartialShape& shape = c.input(0);
  PartialShape output;
  if (shape.known_rank()) {
    MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(c.attr<int64_t>("axis"), shape.rank()));
    if (shape.dim(axis) >= 0 && shape.dim(axis) != c.num_outputs()) {
      return InvalidArgument("dimension " + std::to_string(axis) + " of " + shape.ToString() +
                             " is not num = " + std::to_string(c.num_outputs()));
    }
    output = PartialShape::Scalar();
    for (int i = 0; i < shape.rank(); ++i) {
      if (i != axis) output.AddDim(shape.dim(i));
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, output);
  return Status();
}

Status ConcatGradientOf(GradientContext& c, int first, int axis_input) {
  const int n = c.num_inputs() - 1;
  const Output axis = c.input(axis_input);
  const auto axis_value = ConstInts(axis);
  // Sizes that are known now make one SplitV; otherwise each part is a Slice at an offset that is
  // computed in the step.
  std::vector<int64_t> sizes;
  Outputs values;
  for (int i = 0; i < n; ++i) {
    values.push_back(c.input(first + i));
    const PartialShape shape = c.input(first + i).shape();
    if (!axis_value || !shape.known_rank()) continue;
    MG_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis_value->front(), shape.rank()));
    if (shape.dim(at) >= 0) sizes.push_back(shape.dim(at));
  }
  if (static_cast<int>(sizes.size()) == n) {
    const Outputs parts =
        SplitV(c.scope(), c.grad(0), sizes, static_cast<int>(axis_value->front()));
    for (int i = 0; i < n; ++i) c.set_grad(first + i, parts[static_cast<size_t>(i)]);
    return Status();
  }
  const Outputs shapes = ShapeN(c.scope(), values);
  Output axis32 = axis;
  if (axis_value) axis32 = Const(c.scope(), static_cast<int32_t>(axis_value->front()));
  if (axis32.valid() && axis32.dtype() != DT_INT32) {
    return Unimplemented(
        "the gradient of a concatenation along an int64 axis that is not a constant");
  }
  const Outputs offsets = ConcatOffset(c.scope(), axis32, shapes);
  for (int i = 0; i < n; ++i) {
    const auto k = static_cast<size_t>(i);
    c.set_grad(first + i, Slice(c.scope(), c.grad(0), offsets[k], shapes[k]));
  }
  return Status();
}

// Rows of one shape, of which the attribute tells.
Status ParallelConcatShape(ShapeContext& c) {
  PartialShape shape = c.attr<PartialShape>("shape");
  if (!shape.fully_known()) return InvalidArgument("shape attr must be fully defined.");
  if (shape.rank() == 0 || shape.dim(0) != c.num_inputs()) {
    return InvalidArgument("shape attr is " + shape.ToString() + ", there are " +
                           std::to_string(c.num_inputs()) + " rows");
  }
  c.set_output(0, shape);
  shape.set_dim(0, 1);
  for (int i = 0; i < c.num_inputs(); ++i)
    MG_RETURN_IF_ERROR(PartialShape::Merge(shape, c.input(i)).status());
  return Status();
}

Status ConcatV2Gradient(GradientContext& c) { return ConcatGradientOf(c, 0, c.num_inputs() - 1); }
Status OldConcatGradient(GradientContext& c) { return ConcatGradientOf(c, 1, 0); }

// The gradients of all outputs; zeros where none flows.
Outputs AllGradients(GradientContext& c) {
  Outputs gradients;
  for (int i = 0; i < c.op().num_outputs(); ++i) {
    gradients.push_back(c.grad(i).valid() ? c.grad(i) : ZerosLike(c.scope(), c.output(i)));
  }
  return gradients;
}

Status SplitGradient(GradientContext& c) {
  c.set_grad(1, Concat(c.scope(), AllGradients(c), c.input(0)));
  return Status();
}

Status SplitVGradient(GradientContext& c) {
  c.set_grad(0, Concat(c.scope(), AllGradients(c), c.input(2)));
  return Status();
}

Status PackGradient(GradientContext& c) {
  const Outputs parts = Unpack(c.scope(), c.grad(0), c.num_inputs(),
                               static_cast<int>(c.attrs().Get<int64_t>("axis")));
  for (int i = 0; i < c.num_inputs(); ++i) c.set_grad(i, parts[static_cast<size_t>(i)]);
  return Status();
}

Status UnpackGradient(GradientContext& c) {
  c.set_grad(0, Pack(c.scope(), AllGradients(c), static_cast<int>(c.attrs().Get<int64_t>("axis"))));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("ConcatV2")
                    .Input("values: N * T")
                    .Input("axis: Tidx")
                    .Output("output: T")
                    .Attr("N: int >= 2")
                    .Attr("T: type")
                    .Attr("Tidx: {int32, int64} = DT_INT32")
                    .Shape(ConcatV2Shape)
                    .Gradient(ConcatV2Gradient));
  registry->Add(OpDef("Concat")
                    .Input("concat_dim: int32")
                    .Input("values: N * T")
                    .Output("output: T")
                    .Attr("N: int >= 2")
                    .Attr("T: type")
                    .Shape(OldConcatShape)
                    .Gradient(OldConcatGradient));
  registry->Add(OpDef("ParallelConcat")
                    .Input("values: N * T")
                    .Output("output: T")
                    .Attr("N: int >= 1")
                    .Attr("T: type")
                    .Attr("shape: shape")
                    .Shape(ParallelConcatShape)
                    .NoGradient());
  registry->Add(OpDef("ConcatOffset")
                    .Input("concat_dim: int32")
                    .Input("shape: N * shape_type")
                    .Output("offset: N * shape_type")
                    .Attr("N: int >= 2")
                    .Attr("shape_type: {int32, int64} = DT_INT32")
                    .Shape(ConcatOffsetShape)
                    .NoGradient());
  registry->Add(OpDef("Split")
                    .Input("split_dim: int32")
                    .Input("value: T")
                    .Output("output: num_split * T")
                    .Attr("num_split: int >= 1")
                    .Attr("T: type")
                    .Shape(SplitShape)
                    .Gradient(SplitGradient));
  registry->Add(OpDef("SplitV")
                    .Input("value: T")
                    .Input("size_splits: Tlen")
                    .Input("split_dim: int32")
                    .Output("output: num_split * T")
                    .Attr("num_split: int >= 1")
                    .Attr("T: type")
                    .Attr("Tlen: {int8, int32, int64} = DT_INT64")
                    .Shape(SplitVShape)
                    .Gradient(SplitVGradient));
  registry->Add(OpDef("Pack")
                    .Input("values: N * T")
                    .Output("output: T")
                    .Attr("N: int >= 1")
                    .Attr("T: type")
                    .Attr("axis: int = 0")
                    .Shape(PackShape)
                    .Gradient(PackGradient));
  registry->Add(OpDef("Unpack")
                    .Input("value: T")
                    .Output("output: num * T")
                    .Attr("num: int >= 0")
                    .Attr("T: type")
                    .Attr("axis: int = 0")
                    .Shape(UnpackShape)
                    .Gradient(UnpackGradient));
}

}  // namespace ops::concat
}  // namespace monograph
