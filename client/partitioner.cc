#include "client/partitioner.h"

#include <algorithm>
#include <string>

namespace monograph {
namespace {

Result<std::vector<int64_t>> Along(const Shape& shape, int axis, int64_t parts) {
  std::vector<int64_t> partitions(static_cast<size_t>(shape.rank()), 1);
  partitions[static_cast<size_t>(axis)] = std::max<int64_t>(1, std::min(parts, shape[axis]));
  return partitions;
}

Status CheckAxis(const Shape& shape, int axis) {
  if (axis >= 0 && axis < shape.rank()) return Status();
  return InvalidArgument("Cannot partition variable along axis " + std::to_string(axis) +
                         " when shape is only " + shape.ToString());
}

int64_t Bytes(const Shape& shape, DType dtype) {
  return shape.elements() * static_cast<int64_t>(DTypeSize(dtype));
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Partitioner FixedSizePartitioner(int64_t num_shards, int axis) {
  return [=](const Shape& shape, DType) -> Result<std::vector<int64_t>> {
    if (num_shards < 1) {
      return InvalidArgument("FixedSizePartitioner: num_shards is " + std::to_string(num_shards) +
                             "; it must be positive");
    }
    MG_RETURN_IF_ERROR(CheckAxis(shape, axis));
    return Along(shape, axis, num_shards);
  };
}

Partitioner MinMaxVariablePartitioner(int64_t max_partitions, int axis, int64_t min_slice_size) {
  return [=](const Shape& shape, DType dtype) -> Result<std::vector<int64_t>> {
    if (max_partitions < 1 || min_slice_size < 1) {
      return InvalidArgument(
          "MinMaxVariablePartitioner: max_partitions and min_slice_size must be positive, not " +
          std::to_string(max_partitions) + " and " + std::to_string(min_slice_size));
    }
    MG_RETURN_IF_ERROR(CheckAxis(shape, axis));
    return Along(shape, axis,
                 std::min(max_partitions, CeilDiv(Bytes(shape, dtype), min_slice_size)));
  };
}

Partitioner VariableAxisSizePartitioner(int64_t max_shard_bytes, int axis, int64_t max_shards) {
  return [=](const Shape& shape, DType dtype) -> Result<std::vector<int64_t>> {
    if (max_shard_bytes < 1 || max_shards < 0) {
      return InvalidArgument("VariableAxisSizePartitioner: max_shard_bytes must be positive, not " +
                             std::to_string(max_shard_bytes) + ", and max_shards not " +
                             std::to_string(max_shards));
    }
    MG_RETURN_IF_ERROR(CheckAxis(shape, axis));
    if (shape.elements() == 0) return Along(shape, axis, 1);
    const int64_t slice_bytes = Bytes(shape, dtype) / shape[axis];
    const int64_t slices_per_shard = std::max<int64_t>(1, max_shard_bytes / slice_bytes);
    const int64_t shards = CeilDiv(shape[axis], slices_per_shard);
    return Along(shape, axis, max_shards > 0 ? std::min(max_shards, shards) : shards);
  };
}

std::vector<PartRange> CutDimension(int64_t size, int64_t parts) {
  std::vector<PartRange> ranges;
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t rows = size / parts + (i < size % parts ? 1 : 0);
    ranges.push_back({begin, rows});
    begin += rows;
  }
  return ranges;
}

}  // namespace monograph
