// Functions, shape functions, gradients and definitions. Slicing and padding are each other's
// gradient; StridedSlice has a gradient op of its own, since a stride leaves gaps that Pad cannot
// make. Sizes that are unknown while the graph is built are computed in the step by the same
// formulas, as nodes.
#include "ops/slice/slice.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape.h"
#include "ops/slice/strided_slice.h"
#include "ops/transpose/transpose.h"

namespace monograph {
namespace {

Output BuildStridedSlice(const Scope& scope, std::string_view op, const Outputs& inputs,
                         const StridedSliceMasks& masks) {
  return OpBuilder(scope, op)
      .Inputs(inputs)
      .Attr("begin_mask", masks.begin_mask)
      .Attr("end_mask", masks.end_mask)
      .Attr("ellipsis_mask", masks.ellipsis_mask)
      .Attr("new_axis_mask", masks.new_axis_mask)
      .Attr("shrink_axis_mask", masks.shrink_axis_mask)
      .BuildOutput();
}

}  // namespace

Output Slice(const Scope& scope, const Output& input, const Output& begin, const Output& size) {
  return OpBuilder(scope, "Slice").Input(input).Input(begin).Input(size).BuildOutput();
}

Output Slice(const Scope& scope, const Output& input, std::initializer_list<int64_t> begin,
             std::initializer_list<int64_t> size) {
  return Slice(scope, input, IntsConst(scope.WithOpName("Slice/begin"), begin),
               IntsConst(scope.WithOpName("Slice/size"), size));
}

Output StridedSlice(const Scope& scope, const Output& input, const Output& begin, const Output& end,
                    const Output& strides, const StridedSliceMasks& masks) {
  return BuildStridedSlice(scope, "StridedSlice", {input, begin, end, strides}, masks);
}

Output Row(const Scope& scope, const Output& input, int64_t index) {
  return StridedSlice(scope, input, IntsConst(scope.WithOpName("strided_slice/stack"), {index}),
                      IntsConst(scope.WithOpName("strided_slice/stack_1"), {index + 1}),
                      IntsConst(scope.WithOpName("strided_slice/stack_2"), {1}),
                      {.shrink_axis_mask = 1});
}

Output Tile(const Scope& scope, const Output& input, const Output& multiples) {
  return OpBuilder(scope, "Tile").Input(input).Input(multiples).BuildOutput();
}

Output Pad(const Scope& scope, const Output& input, const Output& paddings) {
  return OpBuilder(scope, "Pad").Input(input).Input(paddings).BuildOutput();
}

Output PadV2(const Scope& scope, const Output& input, const Output& paddings,
             const Output& constant_values) {
  return OpBuilder(scope, "PadV2")
      .Input(input)
      .Input(paddings)
      .Input(constant_values)
      .BuildOutput();
}

namespace ops::slice {
namespace {

constexpr const char* kMasks[] = {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask",
                                  "shrink_axis_mask"};

// Masks are 64 bits wide in graphs, and TensorFlow's kernels take 32.
Status CheckMasks(const Attrs& attrs) {
  for (const char* name : kMasks) {
    const auto mask = attrs.Get<int64_t>(name);
    if (mask != static_cast<int32_t>(mask)) {
      return InvalidArgument(std::string(name) + " is " + std::to_string(mask) +
                             ", out of range for an int32");
    }
  }
  return Status();
}

StridedSliceMasks MasksOf(const Attrs& attrs) {
  return {attrs.Get<int64_t>("begin_mask"), attrs.Get<int64_t>("end_mask"),
          attrs.Get<int64_t>("ellipsis_mask"), attrs.Get<int64_t>("new_axis_mask"),
          attrs.Get<int64_t>("shrink_axis_mask")};
}

Status SliceShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape begin_shape, c.WithRank(1, 1));
  MG_ASSIGN_OR_RETURN(const PartialShape size_shape, c.WithRank(2, 1));
  MG_ASSIGN_OR_RETURN(const PartialShape lengths, PartialShape::Merge(begin_shape, size_shape));
  PartialShape input = c.input(0);
  if (!input.known_rank() && lengths.dim(0) >= 0 && lengths.dim(0) <= kMaxRank) {
    input = PartialShape::UnknownOfRank(static_cast<int>(lengths.dim(0)));
  }
  if (!input.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (lengths.dim(0) >= 0 && lengths.dim(0) != input.rank()) {
    return InvalidArgument("begin and size have " + std::to_string(lengths.dim(0)) +
                           " entries for an input of shape " + input.ToString());
  }
  const auto begin = c.InputAsInts(1), size = c.InputAsInts(2);
  PartialShape output = PartialShape::UnknownOfRank(input.rank());
  for (int i = 0; i < input.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t dim = input.dim(i);
    if (size && (*size)[at] >= 0) output.set_dim(i, (*size)[at]);
    if (size && (*size)[at] == -1 && begin && dim >= 0) output.set_dim(i, dim - (*begin)[at]);
    if ((size && (*size)[at] < -1) || (begin && (*begin)[at] < 0) ||
        (dim >= 0 && output.dim(i) >= 0 && begin && output.dim(i) > dim - (*begin)[at]) ||
        (size && begin && dim >= 0 && (*begin)[at] > dim)) {
      return InvalidArgument("the slice leaves dimension " + std::to_string(i) + " of " +
                             input.ToString());
    }
  }
  c.set_output(0, output);
  return Status();
}

Status StridedSliceShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(CheckMasks(c.attrs()));
  PartialShape lengths;
  for (int i = 1; i <= 3; ++i) {
    MG_ASSIGN_OR_RETURN(const PartialShape shape, c.WithRank(i, 1));
    MG_ASSIGN_OR_RETURN(lengths, PartialShape::Merge(lengths, shape));
  }
  if (!c.input(0).known_rank() || lengths.dim(0) < 0) {
    c.set_output(0, PartialShape());
    return Status();
  }
  const std::vector<int64_t> begin = c.InputAsInts(1).value_or(std::vector<int64_t>()),
                             end = c.InputAsInts(2).value_or(std::vector<int64_t>()),
                             strides = c.InputAsInts(3).value_or(std::vector<int64_t>());
  MG_ASSIGN_OR_RETURN(const StridedSlicePlan plan,
                      PlanStridedSlice(c.input(0), static_cast<int>(lengths.dim(0)), begin, end,
                                       strides, MasksOf(c.attrs())));
  c.set_output(0, plan.output);
  return Status();
}

Status StridedSliceGradShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(CheckMasks(c.attrs()));
  MG_ASSIGN_OR_RETURN(const PartialShape shape, c.InputAsShape(0));
  c.set_output(0, shape);
  return Status();
}

Status TileShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape lengths, c.WithRank(1, 1));
  PartialShape shape = c.input(0);
  if (!shape.known_rank()) {
    if (lengths.dim(0) >= 0 && lengths.dim(0) <= kMaxRank) {
      shape = PartialShape::UnknownOfRank(static_cast<int>(lengths.dim(0)));
    }
    c.set_output(0, shape);
    return Status();
  }
  if (lengths.dim(0) >= 0 && lengths.dim(0) != shape.rank()) {
    return InvalidArgument(std::to_string(lengths.dim(0)) + " multiples for an input of shape " +
                           shape.ToString());
  }
  const auto multiples = c.InputAsInts(1);
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t multiple = multiples ? (*multiples)[static_cast<size_t>(i)] : -1;
    if (multiples && multiple < 0) return InvalidArgument("multiples must not be negative");
    int64_t dim = -1;
    if (multiple >= 0 && shape.dim(i) >= 0 && __builtin_mul_overflow(shape.dim(i), multiple, &dim))
      return InvalidArgument("the result is too large");
    shape.set_dim(i, dim);
  }
  c.set_output(0, shape);
  return Status();
}

Status PadShape(ShapeContext& c) {
  MG_ASSIGN_OR_RETURN(const PartialShape paddings_shape, c.WithRank(1, 2));
  if (paddings_shape.dim(1) >= 0 && paddings_shape.dim(1) != 2) {
    return InvalidArgument("paddings must have two columns, not shape " +
                           paddings_shape.ToString());
  }
  if (c.num_inputs() > 2) MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  PartialShape shape = c.input(0);
  if (!shape.known_rank()) {
    if (paddings_shape.dim(0) >= 0 && paddings_shape.dim(0) <= kMaxRank) {
      shape = PartialShape::UnknownOfRank(static_cast<int>(paddings_shape.dim(0)));
    }
    c.set_output(0, shape);
    return Status();
  }
  if (paddings_shape.dim(0) >= 0 && paddings_shape.dim(0) != shape.rank()) {
    return InvalidArgument("paddings of shape " + paddings_shape.ToString() +
                           " for an input of shape " + shape.ToString());
  }
  const Tensor* value = c.input_value(1);
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t before = -1, after = -1;
    if (value != nullptr) {
      const bool wide = value->dtype() == DT_INT64;
      before = wide ? value->data<int64_t>()[2 * i] : value->data<int32_t>()[2 * i];
      after = wide ? value->data<int64_t>()[2 * i + 1] : value->data<int32_t>()[2 * i + 1];
      if (before < 0 || after < 0) return InvalidArgument("paddings must not be negative");
    }
    int64_t dim = -1;
    if (value != nullptr && shape.dim(i) >= 0 &&
        (__builtin_add_overflow(before, after, &dim) ||
         __builtin_add_overflow(dim, shape.dim(i), &dim))) {
      return InvalidArgument("the result is too large");
    }
    shape.set_dim(i, dim);
  }
  c.set_output(0, shape);
  return Status();
}

// The gradient of a slice is the gradient padded with zeros to where it came from.
Status SliceGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output begin = c.input(1), index_shape = IntsConst(s, {-1, 1});
  const Output whole = ShapeOf(s, c.input(0), begin.dtype());
  const Output after = Sub(s, Sub(s, whole, ShapeOf(s, c.output(0), begin.dtype())), begin);
  const Output paddings =
      Concat(s, {Reshape(s, begin, index_shape), Reshape(s, after, index_shape)}, 1);
  c.set_grad(0, Pad(s, c.grad(0), paddings));
  return Status();
}

Status StridedSliceGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output shape = ShapeOf(s, c.input(0), c.input(1).dtype());
  c.set_grad(0, BuildStridedSlice(s, "StridedSliceGrad",
                                  {shape, c.input(1), c.input(2), c.input(3), c.grad(0)},
                                  MasksOf(c.attrs())));
  return Status();
}

Status StridedSliceGradGradient(GradientContext& c) {
  c.set_grad(4, StridedSlice(c.scope(), c.grad(0), c.input(1), c.input(2), c.input(3),
                             MasksOf(c.attrs())));
  return Status();
}

// The gradient of Tile for as many dimensions as a shape may have: the last one reshaped to
// [before, m, d, behind] and summed over its m, then the one before it.
Output SumOverTiles(const Scope& s, Output gradient, const Output& multiples, const Output& shape,
                    int64_t rank) {
  const Output tiled = Mul(s, multiples, shape);
  const auto one = [&](const Output& of, int64_t i) {
    return Reshape(s, Slice(s, of, {i}, {1}), IntsConst(s, {}));
  };
  for (int64_t i = rank - 1; i >= 0; --i) {
    const Output before = Prod(s, Slice(s, tiled, {0}, {i}), IntsConst(s, {0}));
    const Output behind = Prod(s, Slice(s, shape, {i + 1}, {rank - 1 - i}), IntsConst(s, {0}));
    const Output parts = Pack(s, {before, one(multiples, i), one(shape, i), behind});
    gradient = Sum(s, Reshape(s, gradient, parts), IntsConst(s, {1}));
  }
  return Reshape(s, gradient, shape);
}

// The gradient reshaped to [m0, d0, m1, d1, ...], summed over the m's.
Status TileGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output shape = ShapeOf(s, c.input(0), c.input(1).dtype());
  const PartialShape length = c.input(1).shape();
  if (length.fully_known() && 2 * length.elements() > kMaxRank) {
    c.set_grad(0, SumOverTiles(s, c.grad(0), c.input(1), shape, length.elements()));
    return Status();
  }
  const Output pairs = Reshape(s, Transpose(s, Pack(s, {c.input(1), shape}), {1, 0}), {-1});
  const PartialShape x = c.input(0).shape();
  Output axes;
  if (x.known_rank()) {
    std::vector<int64_t> even;
    for (int i = 0; i < x.rank(); ++i) even.push_back(2 * i);
    axes = IntsConst(s, even);
  } else {
    axes = Range(s, Const(s, 0), Size(s, pairs), Const(s, 2));
  }
  const Output sum = Sum(s, Reshape(s, c.grad(0), pairs), axes);
  c.set_grad(0, x.fully_known() ? Reshape(s, sum, IntsConst(s, x.dims())) : sum);
  return Status();
}

Status PadGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output paddings = c.input(1);
  const Output before =
      StridedSlice(s, paddings, IntsConst(s, {0, 0}), IntsConst(s, {0, 1}), IntsConst(s, {1, 1}),
                   {.begin_mask = 1, .end_mask = 1, .shrink_axis_mask = 2});
  c.set_grad(0, Slice(s, c.grad(0), before, ShapeOf(s, c.input(0), paddings.dtype())));
  return Status();
}

Status StridedSliceUpdateGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const StridedSliceMasks masks = MasksOf(c.attrs());
  OpBuilder update(s, "TensorStridedSliceUpdate");
  update.Input(c.grad(0));
  for (int i = 1; i <= 3; ++i) update.Input(c.input(i));
  update.Input(ZerosLike(s, c.input(4)));
  for (const char* name : kMasks) update.Attr(name, AttrValue(c.attrs().Get<int64_t>(name)));
  c.set_grad(0, update.BuildOutput());
  c.set_grad(4, StridedSlice(s, c.grad(0), c.input(1), c.input(2), c.input(3), masks));
  return Status();
}

OpDef StridedSliceDef(const char* name) {
  OpDef def(name);
  def.Attr("T: type").Attr("Index: {int32, int64}");
  for (const char* mask : kMasks) def.Attr(std::string(mask) + ": int = 0");
  return def;
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Slice")
                    .Input("input: T")
                    .Input("begin: Index")
                    .Input("size: Index")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Index: {int32, int64}")
                    .Shape(SliceShape)
                    .Gradient(SliceGradient));
  registry->Add(StridedSliceDef("StridedSlice")
                    .Input("input: T")
                    .Input("begin: Index")
                    .Input("end: Index")
                    .Input("strides: Index")
                    .Output("output: T")
                    .Shape(StridedSliceShape)
                    .Gradient(StridedSliceGradient));
  registry->Add(StridedSliceDef("StridedSliceGrad")
                    .Input("shape: Index")
                    .Input("begin: Index")
                    .Input("end: Index")
                    .Input("strides: Index")
                    .Input("dy: T")
                    .Output("output: T")
                    .Shape(StridedSliceGradShape)
                    .Gradient(StridedSliceGradGradient));
  registry->Add(StridedSliceDef("TensorStridedSliceUpdate")
                    .Input("input: T")
                    .Input("begin: Index")
                    .Input("end: Index")
                    .Input("strides: Index")
                    .Input("value: T")
                    .Output("output: T")
                    .Shape(UnchangedShape)
                    .Gradient(StridedSliceUpdateGradient));
  registry->Add(OpDef("Tile")
                    .Input("input: T")
                    .Input("multiples: Tmultiples")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tmultiples: {int32, int64} = DT_INT32")
                    .Shape(TileShape)
                    .Gradient(TileGradient));
  registry->Add(OpDef("Pad")
                    .Input("input: T")
                    .Input("paddings: Tpaddings")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tpaddings: {int32, int64} = DT_INT32")
                    .Shape(PadShape)
                    .Gradient(PadGradient));
  registry->Add(OpDef("PadV2")
                    .Input("input: T")
                    .Input("paddings: Tpaddings")
                    .Input("constant_values: T")
                    .Output("output: T")
                    .Attr("T: type")
                    .Attr("Tpaddings: {int32, int64} = DT_INT32")
                    .Shape(PadShape)
                    .Gradient(PadGradient));
}

}  // namespace ops::slice
}  // namespace monograph
