// Functions, shape functions, gradients and definitions. The gradient of gathering along axis 0 is
// a Gradient of rows: values and indices, no tensor of the size of the table. Along other axes it
// is a dense UnsortedSegmentSum with the axis moved to the front, and with batch dimensions every
// batch gets segments of its own.
#include "ops/gather/gather.h"

#include "graph/gradients.h"
#include "graph/op_def.h"
#include "graph/shape_inference.h"
#include "ops/cast/cast.h"
#include "ops/concat/concat.h"
#include "ops/constant/constant.h"
#include "ops/dims.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/select/select.h"
#include "ops/shape/shape.h"
#include "ops/slice/slice.h"
#include "ops/transpose/transpose.h"
#include "ops/types.h"

namespace monograph {

Output Gather(const Scope& scope, const Output& params, const Output& indices, int axis) {
  const Output at = Const(scope.WithOpName("GatherV2/axis"), axis);
  return OpBuilder(scope, "GatherV2").Input(params).Input(indices).Input(at).BuildOutput();
}

Output OneHot(const Scope& scope, const Output& indices, const Output& depth,
              const Output& on_value, const Output& off_value, int axis) {
  return OpBuilder(scope, "OneHot")
      .Input(indices)
      .Input(depth)
      .Input(on_value)
      .Input(off_value)
      .Attr("axis", axis)
      .BuildOutput();
}

Output OneHot(const Scope& scope, const Output& indices, int depth, DType dtype) {
  const Scope inner = scope.SubScope("one_hot");
  return OneHot(inner, indices, Const(inner.WithOpName("depth"), depth),
                ScalarConst(inner.WithOpName("on_value"), 1, dtype),
                ScalarConst(inner.WithOpName("off_value"), 0, dtype));
}

Output DynamicStitch(const Scope& scope, const Outputs& indices, const Outputs& data) {
  return OpBuilder(scope, "DynamicStitch").Inputs(indices).Inputs(data).BuildOutput();
}

Output UnsortedSegmentSum(const Scope& scope, const Output& data, const Output& segment_ids,
                          const Output& num_segments) {
  return OpBuilder(scope, "UnsortedSegmentSum")
      .Input(data)
      .Input(segment_ids)
      .Input(num_segments)
      .BuildOutput();
}

Outputs DynamicPartition(const Scope& scope, const Output& data, const Output& partitions,
                         int num_partitions) {
  const Operation node = OpBuilder(scope, "DynamicPartition")
                             .Input(data)
                             .Input(partitions)
                             .Attr("num_partitions", num_partitions)
                             .Build();
  Outputs parts;
  for (int i = 0; i < num_partitions; ++i) parts.push_back(node.output(i));
  return parts;
}

Gradient RowGradient(const Scope& s, const Output& gradient, const Output& indices) {
  const PartialShape &at = indices.shape(), &all = gradient.shape();
  if (at.known_rank() && at.rank() == 1) return {gradient, indices};
  std::vector<int64_t> dims{-1};
  bool known = at.known_rank() && all.known_rank();
  for (int i = at.known_rank() ? at.rank() : 0; known && i < all.rank(); ++i) {
    dims.push_back(all.dim(i));
    known = all.dim(i) > 0;
  }
  Output shape;
  if (known) {
    shape = IntsConst(s, dims);
  } else {
    const Output begin = Reshape(s, Rank(s, indices), {1});
    const Output row = Slice(s, ShapeOf(s, gradient), begin, IntsConst(s, {-1}));
    shape = Concat(s, {Reshape(s, Size(s, indices), {1}), row}, 0);
  }
  return {Reshape(s, gradient, shape), Reshape(s, indices, {-1})};
}

namespace ops::gather {
namespace {

Status GatherShape(ShapeContext& c) {  // also that of Gather, which has no axis
  const bool has_axis = c.num_inputs() > 2;
  if (has_axis) MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  const PartialShape &params = c.input(0), &indices = c.input(1);
  const auto axis_value = has_axis ? c.InputAsInts(2) : std::vector<int64_t>{0};
  if (!params.known_rank() || !indices.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (params.rank() == 0) return InvalidArgument("params must have at least one dimension");
  int64_t batch_dims = c.attrs().GetOr<int64_t>("batch_dims", 0);
  if (batch_dims < 0) batch_dims += indices.rank();
  if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims >= params.rank()) {
    return InvalidArgument("batch_dims does not fit params " + params.ToString() + " and indices " +
                           indices.ToString());
  }
  const int batch = static_cast<int>(batch_dims);
  const int rank = params.rank() - 1 + indices.rank() - batch;
  if (rank > kMaxRank) return TooManyDimensions();
  if (!axis_value) {
    c.set_output(0, PartialShape::UnknownOfRank(rank));
    return Status();
  }
  MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_value->front(), params.rank()));
  if (axis < batch)
    return InvalidArgument("axis " + std::to_string(axis) + " lies in the batch dimensions");
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i < axis; ++i) output.AddDim(params.dim(i));
  for (int i = batch; i < indices.rank(); ++i) output.AddDim(indices.dim(i));
  for (int i = axis + 1; i < params.rank(); ++i) output.AddDim(params.dim(i));
  c.set_output(0, output);
  return Status();
}

Status OneHotShape(ShapeContext& c) {
  for (int i = 1; i < 4; ++i) MG_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  const PartialShape& indices = c.input(0);
  if (!indices.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (indices.rank() == kMaxRank) return TooManyDimensions();
  MG_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(c.attr<int64_t>("axis"), indices.rank() + 1));
  const auto depth = c.InputAsInts(1);
  if (depth && depth->front() < 0) return InvalidArgument("depth must not be negative");
  PartialShape output = PartialShape::Scalar();
  for (int i = 0; i <= indices.rank(); ++i) {
    output.AddDim(i == axis ? (depth ? depth->front() : -1) : indices.dim(i < axis ? i : i - 1));
  }
  c.set_output(0, output);
  return Status();
}

Status DynamicPartitionShape(ShapeContext& c) {
  const PartialShape &data = c.input(0), &partitions = c.input(1);
  PartialShape part;
  if (data.known_rank() && partitions.known_rank()) {
    bool fits = partitions.rank() <= data.rank();
    for (int i = 0; i < partitions.rank() && fits; ++i) {
      fits = partitions.dim(i) < 0 || data.dim(i) < 0 || partitions.dim(i) == data.dim(i);
    }
    if (!fits) {
      return InvalidArgument("data of shape " + data.ToString() +
                             " does not begin with the shape " + partitions.ToString() +
                             " of partitions");
    }
    if (data.rank() - partitions.rank() == kMaxRank) return TooManyDimensions();
    part = PartialShape{-1};
    for (int i = partitions.rank(); i < data.rank(); ++i) part.AddDim(data.dim(i));
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, part);
  return Status();
}

Status DynamicStitchShape(ShapeContext& c) {
  const int n = c.num_inputs() / 2;
  PartialShape rest;
  bool all_known = true;
  int64_t highest = -1;
  for (int i = 0; i < n; ++i) {
    const PartialShape &indices = c.input(i), &data = c.input(n + i);
    if (const auto values = c.InputAsInts(i)) {
      for (int64_t value : *values) highest = std::max(highest, value);
    } else {
      all_known = false;
    }
    if (!indices.known_rank() || !data.known_rank()) continue;
    if (data.rank() < indices.rank()) {
      return InvalidArgument("data[" + std::to_string(i) + "] of shape " + data.ToString() +
                             " does not begin with the shape " + indices.ToString() +
                             " of its indices");
    }
    PartialShape tail = PartialShape::Scalar();
    for (int k = indices.rank(); k < data.rank(); ++k) tail.AddDim(data.dim(k));
    MG_ASSIGN_OR_RETURN(rest, PartialShape::Merge(rest, tail));
    for (int k = 0; k < indices.rank(); ++k) {
      if (indices.dim(k) >= 0 && data.dim(k) >= 0 && indices.dim(k) != data.dim(k)) {
        return InvalidArgument("data[" + std::to_string(i) + "] of shape " + data.ToString() +
                               " does not begin with the shape " + indices.ToString() +
                               " of its indices");
      }
    }
  }
  PartialShape output;
  if (rest.known_rank() && rest.rank() < kMaxRank) {
    output = PartialShape{all_known ? highest + 1 : -1};
    for (int64_t dim : rest.dims()) output.AddDim(dim);
  }
  c.set_output(0, output);
  return Status();
}

Status SegmentSumShape(ShapeContext& c) {
  MG_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  const PartialShape &data = c.input(0), &ids = c.input(1);
  if (!data.known_rank() || !ids.known_rank()) {
    c.set_output(0, PartialShape());
    return Status();
  }
  if (ids.rank() > data.rank()) {
    return InvalidArgument("data of shape " + data.ToString() + " does not begin with the shape " +
                           ids.ToString() + " of segment_ids");
  }
  for (int i = 0; i < ids.rank(); ++i) {
    if (ids.dim(i) >= 0 && data.dim(i) >= 0 && ids.dim(i) != data.dim(i)) {
      return InvalidArgument("data of shape " + data.ToString() +
                             " does not begin with the shape " + ids.ToString() +
                             " of segment_ids");
    }
  }
  const auto segments = c.InputAsInts(2);
  if (segments && segments->front() < 0)
    return InvalidArgument("num_segments must not be negative");
  if (data.rank() - ids.rank() == kMaxRank) return TooManyDimensions();
  PartialShape output{segments ? segments->front() : -1};
  for (int i = ids.rank(); i < data.rank(); ++i) output.AddDim(data.dim(i));
  c.set_output(0, output);
  return Status();
}

// The product of a range of elements of the vector `shape`; `size` -1 goes to its end.
Output Extent(const Scope& s, const Output& shape, int64_t begin, int64_t size) {
  return Prod(s, Slice(s, shape, {begin}, {size}), IntsConst(s, {0}));
}

// With `batch_dims` leading dimensions in common: every batch gets segments of its own.
Output BatchGatherGradient(GradientContext& c, int64_t batch_dims, int64_t axis) {
  const Scope& s = c.scope();
  const Output shape = ShapeOf(s, c.input(0)), indices_shape = ShapeOf(s, c.input(1));
  const Output batches = Extent(s, shape, 0, batch_dims),
               outer = Extent(s, shape, batch_dims, axis - batch_dims), limit = Row(s, shape, axis),
               inner = Extent(s, shape, axis + 1, -1),
               count = Extent(s, indices_shape, batch_dims, -1);
  const Output starts = Mul(s, Range(s, Const(s, 0), batches, Const(s, 1)), limit);
  const Output indices = Reshape(s, c.input(1), Pack(s, {batches, count}));
  const Output segments = Add(s, indices, Cast(s, ExpandDims(s, starts, 1), indices.dtype()));
  //   [batches, outer, count, inner] -> [batches * count, outer, inner]
  //   -> sums [batches * limit, outer, inner] -> [batches, outer, limit, inner]
  const Output blocks = Reshape(s, c.grad(0), Pack(s, {batches, outer, count, inner}));
  const Output rows = Reshape(s, Transpose(s, blocks, {0, 2, 1, 3}),
                              Pack(s, {Mul(s, batches, count), outer, inner}));
  const Output sums =
      UnsortedSegmentSum(s, rows, Reshape(s, segments, {-1}), Mul(s, batches, limit));
  const Output apart = Reshape(s, sums, Pack(s, {batches, limit, outer, inner}));
  return Reshape(s, Transpose(s, apart, {0, 2, 1, 3}), shape);
}

Status OldGatherGradient(GradientContext& c) {
  c.set_gradient(0, RowGradient(c.scope(), c.grad(0), c.input(1)));
  return Status();
}

Status GatherGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output params = c.input(0);
  const auto axis_value = ConstInts(c.input(2));
  if (!axis_value)
    return Unimplemented("the gradient of GatherV2 along an axis that is not a constant");
  if (axis_value->front() < 0 && !params.shape().known_rank()) {
    return Unimplemented(
        "the gradient of GatherV2 along a negative axis of a tensor of unknown rank");
  }
  const int64_t axis =
      axis_value->front() < 0 ? axis_value->front() + params.shape().rank() : axis_value->front();
  if (int64_t batch_dims = c.attrs().GetOr<int64_t>("batch_dims", 0); batch_dims != 0) {
    if (batch_dims < 0 && !c.input(1).shape().known_rank()) {
      return Unimplemented(
          "the gradient of GatherV2 with negative batch_dims and indices of unknown rank");
    }
    if (batch_dims < 0) batch_dims += c.input(1).shape().rank();
    if (batch_dims > 0) {
      c.set_grad(0, BatchGatherGradient(c, batch_dims, axis));
      return Status();
    }
  }
  if (axis == 0) {
    c.set_gradient(0, RowGradient(s, c.grad(0), c.input(1)));
    return Status();
  }
  const Output indices = Reshape(s, c.input(1), {-1});
  const Output shape = ShapeOf(s, params);
  const Output segments = Row(s, shape, axis);
  //   [outer, indices, inner] -> [indices, outer, inner]
  //   -> sums [segments, outer, inner] -> [outer, segments, inner]
  const Output outer = Prod(s, Slice(s, shape, {0}, {axis}), IntsConst(s, {0}));
  const Output blocks = Reshape(s, c.grad(0), Pack(s, {outer, Size(s, indices), Const(s, -1)}));
  const Output sums = UnsortedSegmentSum(s, Transpose(s, blocks, {1, 0, 2}), indices, segments);
  c.set_grad(0, Reshape(s, Transpose(s, sums, {1, 0, 2}), shape));
  return Status();
}

// The rows of all parts, put back where they were.
Status DynamicPartitionGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output data = c.input(0), partitions = c.input(1);
  const int n = c.op().num_outputs();
  const Output positions =
      Reshape(s, Range(s, Const(s, 0), Size(s, partitions), Const(s, 1)), ShapeOf(s, partitions));
  Outputs gradients;
  for (int i = 0; i < n; ++i) {
    gradients.push_back(c.grad(i).valid() ? c.grad(i) : ZerosLike(s, c.output(i)));
  }
  const Output rows = DynamicStitch(s, DynamicPartition(s, positions, partitions, n), gradients);
  c.set_grad(0, Reshape(s, rows, ShapeOf(s, data)));
  return Status();
}

Status DynamicStitchGradient(GradientContext& c) {
  const int n = c.num_inputs() / 2;
  for (int i = 0; i < n; ++i) c.set_grad(n + i, Gather(c.scope(), c.grad(0), c.input(i)));
  return Status();
}

// Row i gets the gradient of its segment, or zeros if its id is negative.
Status SegmentSumGradient(GradientContext& c) {
  const Scope& s = c.scope();
  const Output ids = c.input(1), zero = ScalarConst(s, 0, ids.dtype());
  const Output rows = Gather(s, c.grad(0), Maximum(s, ids, zero));
  Output kept = GreaterEqual(s, ids, zero);
  if (ids.shape().known_rank() && c.input(0).shape().known_rank()) {
    for (int i = ids.shape().rank(); i < c.input(0).shape().rank(); ++i)
      kept = ExpandDims(s, kept, -1);
  } else {
    const Output extra = Sub(s, Rank(s, rows), Rank(s, ids));
    const Output ones = Fill(s, Reshape(s, extra, {1}), Const(s, 1));
    kept = Reshape(s, kept, Concat(s, {ShapeOf(s, ids), ones}, 0));
  }
  c.set_grad(0, Select(s, kept, rows, ZerosLike(s, rows)));
  return Status();
}

}  // namespace

void Define(OpRegistry* registry) {
  registry->Add(OpDef("Gather")
                    .Input("params: Tparams")
                    .Input("indices: Tindices")
                    .Output("output: Tparams")
                    .Attr("validate_indices: bool = true")
                    .Attr("Tparams: type")
                    .Attr("Tindices: {int32, int64}")
                    .Shape(GatherShape)
                    .Gradient(OldGatherGradient));
  registry->Add(OpDef("GatherV2")
                    .Input("params: Tparams")
                    .Input("indices: Tindices")
                    .Input("axis: Taxis")
                    .Output("output: Tparams")
                    .Attr("batch_dims: int = 0")
                    .Attr("Tparams: type")
                    .Attr("Tindices: {int32, int64}")
                    .Attr("Taxis: {int32, int64}")
                    .Shape(GatherShape)
                    .Gradient(GatherGradient));
  registry->Add(OpDef("OneHot")
                    .Input("indices: TI")
                    .Input("depth: int32")
                    .Input("on_value: T")
                    .Input("off_value: T")
                    .Output("output: T")
                    .Attr("axis: int = -1")
                    .Attr("T: type")
                    .Attr("TI: {uint8, int8, int32, int64} = DT_INT64")
                    .Shape(OneHotShape)
                    .NoGradient());
  registry->Add(OpDef("DynamicPartition")
                    .Input("data: T")
                    .Input("partitions: int32")
                    .Output("outputs: num_partitions * T")
                    .Attr("num_partitions: int >= 1")
                    .Attr("T: type")
                    .Shape(DynamicPartitionShape)
                    .Gradient(DynamicPartitionGradient));
  for (const char* name : {"DynamicStitch", "ParallelDynamicStitch"}) {
    registry->Add(OpDef(name)
                      .Input("indices: N * int32")
                      .Input("data: N * T")
                      .Output("merged: T")
                      .Attr("N: int >= 1")
                      .Attr("T: type")
                      .Shape(DynamicStitchShape)
                      .Gradient(DynamicStitchGradient));
  }
  registry->Add(OpDef("UnsortedSegmentSum")
                    .Input("data: T")
                    .Input("segment_ids: Tindices")
                    .Input("num_segments: Tnumsegments")
                    .Output("output: T")
                    .Attr("T: " MG_OP_NUMBER_TYPES)
                    .Attr("Tindices: {int32, int64}")
                    .Attr("Tnumsegments: {int32, int64} = DT_INT32")
                    .Shape(SegmentSumShape)
                    .Gradient(SegmentSumGradient));
}

}  // namespace ops::gather
}  // namespace monograph
