// What gathering and adding of rows ask of their shapes, on any device.
#pragma once

#include <algorithm>
#include <vector>

#include "executor/kernel.h"
#include "ops/check_indices.h"
#include "ops/cpu/kernel_util.h"
#include "ops/dims.h"

namespace monograph::ops::gather {

// GatherV2: row (b, o, k) of the result is row indices[b, k] of block (b, o) of params, which has
// `limit` rows of `inner` elements.
struct GatherPlan {
  Shape output;
  int64_t batch = 1, outer = 1, count = 1, limit = 0, inner = 1;
};

inline Result<GatherPlan> PlanGather(const Shape& params, const Shape& indices,
                                     const Tensor& axis_tensor, int64_t given_batch_dims) {
  if (params.rank() == 0) return InvalidArgument("params must have at least one dimension");
  MG_ASSIGN_OR_RETURN(const int axis, AxisOf(axis_tensor, params.rank()));
  const int64_t batch_dims =
      given_batch_dims < 0 ? given_batch_dims + indices.rank() : given_batch_dims;
  if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims > axis) {
    return InvalidArgument("batch_dims " + std::to_string(given_batch_dims) +
                           " does not fit indices of shape " + indices.ToString() + " and axis " +
                           std::to_string(axis));
  }
  const int batch_rank = static_cast<int>(batch_dims);
  if (params.rank() - 1 + indices.rank() - batch_rank > kMaxRank) {
    return TooManyDimensions();
  }
  GatherPlan plan;
  for (int i = 0; i < axis; ++i) {
    (i < batch_rank ? plan.batch : plan.outer) *= params.dim(i);
    if (i < batch_rank && params.dim(i) != indices.dim(i)) {
      return InvalidArgument("batch dimension " + std::to_string(i) + " of params " +
                             params.ToString() + " and indices " + indices.ToString() + " differ");
    }
    plan.output.AddDim(params.dim(i));
  }
  for (int i = batch_rank; i < indices.rank(); ++i) {
    plan.count *= indices.dim(i);
    plan.output.AddDim(indices.dim(i));
  }
  for (int i = axis + 1; i < params.rank(); ++i) {
    plan.inner *= params.dim(i);
    plan.output.AddDim(params.dim(i));
  }
  plan.limit = params.dim(axis);
  return plan;
}

// OneHot: [outer, depth, inner] from [outer, inner] indices.
struct OneHotPlan {
  Shape output;
  int64_t depth = 0, inner = 1;
};

inline Result<OneHotPlan> PlanOneHot(const KernelContext& c, int64_t given_axis) {
  const Shape in = c.input(0).shape();
  OneHotPlan plan;
  MG_ASSIGN_OR_RETURN(plan.depth, IntOf(c.input(1), "depth"));
  if (c.input(1).shape().rank() != 0) return InvalidArgument("depth must be a scalar");
  if (c.input(2).shape().rank() != 0 || c.input(3).shape().rank() != 0) {
    return InvalidArgument("on_value and off_value must be scalars");
  }
  const int64_t axis = given_axis < 0 ? given_axis + in.rank() + 1 : given_axis;
  if (axis < 0 || axis > in.rank() || plan.depth < 0 || in.rank() == kMaxRank) {
    return InvalidArgument("axis " + std::to_string(given_axis) + " and depth " +
                           std::to_string(plan.depth) + " do not fit indices of shape " +
                           in.ToString());
  }
  for (int i = 0; i <= in.rank(); ++i) {
    plan.output.AddDim(i == axis ? plan.depth : in.dim(i < axis ? i : i - 1));
    if (i > axis) plan.inner *= plan.output.dim(i);
  }
  return plan;
}

// UnsortedSegmentSum: `columns` elements for each id.
struct SegmentPlan {
  Shape output;
  int64_t segments = 0, columns = 1;
};

inline Result<SegmentPlan> PlanSegments(const KernelContext& c) {
  const Shape data = c.input(0).shape(), ids = c.input(1).shape();
  SegmentPlan plan;
  MG_ASSIGN_OR_RETURN(plan.segments, IntOf(c.input(2), "num_segments"));
  if (plan.segments < 0) return InvalidArgument("num_segments must not be negative");
  plan.output.AddDim(plan.segments);
  bool fits = data.rank() >= ids.rank();
  for (int i = 0; i < data.rank() && fits; ++i) {
    if (i < ids.rank()) {
      fits = data.dim(i) == ids.dim(i);
    } else if (plan.output.rank() == kMaxRank) {
      return TooManyDimensions();
    } else {
      plan.output.AddDim(data.dim(i));
      plan.columns *= data.dim(i);
    }
  }
  if (!fits) {
    return InvalidArgument("data of shape " + data.ToString() + " does not begin with the shape " +
                           ids.ToString() + " of segment_ids");
  }
  return plan;
}

// DynamicStitch: inputs are n lists of indices and, behind them, a tensor of rows for each.
struct StitchPlan {
  Shape output;
  int64_t rows = 0;
  size_t row_bytes = 0;
};

inline Result<StitchPlan> PlanStitch(const KernelContext& c) {
  const int n = c.num_inputs() / 2;
  StitchPlan plan;
  Shape row;
  for (int i = 0; i < n; ++i) {
    const Shape indices = c.input(i).shape(), data = c.input(n + i).shape();
    Shape tail;
    bool fits = data.rank() >= indices.rank();
    for (int d = 0; d < data.rank() && fits; ++d) {
      if (d < indices.rank()) {
        fits = indices.dim(d) == data.dim(d);
      } else {
        tail.AddDim(data.dim(d));
      }
    }
    if (i == 0) row = tail;
    if (!fits || !(row == tail)) {
      return InvalidArgument("data[" + std::to_string(i) + "] of shape " + data.ToString() +
                             " fits neither its indices of shape " + indices.ToString() +
                             " nor rows of shape " + row.ToString());
    }
    for (int32_t index : c.input(i).values<int32_t>()) {
      if (index < 0) return InvalidArgument("index " + std::to_string(index) + " is negative");
      plan.rows = std::max<int64_t>(plan.rows, index + int64_t{1});
    }
  }
  if (row.rank() == kMaxRank) return TooManyDimensions();
  plan.output.AddDim(plan.rows);
  for (int64_t dim : row.dims()) plan.output.AddDim(dim);
  plan.row_bytes = static_cast<size_t>(row.elements()) * DTypeSize(c.output_dtype(0));
  return plan;
}

// DynamicPartition: `rows` of each output.
struct PartitionPlan {
  std::vector<int64_t> rows;
  Shape row;
  size_t row_bytes = 0;

  Shape output(size_t p) const {
    Shape shape{rows[p]};
    for (int64_t dim : row.dims()) shape.AddDim(dim);
    return shape;
  }
};

inline Result<PartitionPlan> PlanPartition(const KernelContext& c) {
  const Shape data = c.input(0).shape(), partitions = c.input(1).shape();
  PartitionPlan plan;
  bool fits = partitions.rank() <= data.rank() && data.rank() - partitions.rank() < kMaxRank;
  for (int i = 0; i < data.rank() && fits; ++i) {
    if (i < partitions.rank()) {
      fits = partitions.dim(i) == data.dim(i);
    } else {
      plan.row.AddDim(data.dim(i));
    }
  }
  if (!fits) {
    return InvalidArgument("data of shape " + data.ToString() + " does not begin with the shape " +
                           partitions.ToString() + " of partitions");
  }
  plan.rows.resize(static_cast<size_t>(c.num_outputs()));
  const auto part = c.input(1).values<int32_t>();
  MG_RETURN_IF_ERROR(CheckIndices(part, c.num_outputs(), "partitions"));
  for (int32_t p : part) ++plan.rows[static_cast<size_t>(p)];
  plan.row_bytes = static_cast<size_t>(plan.row.elements()) * DTypeSize(c.input(0).dtype());
  return plan;
}

}  // namespace monograph::ops::gather
