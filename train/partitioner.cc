#include "train/partitioner.h"

#include <algorithm>
#include <string>

namespace monograph {
namespace {

Result<std::vector<int64_t>> Along(const Shape& shape, int axis, int64_t parts) {
  std::vector<int64_t> partitions(static_cast<size_t>(shape.rank()), 1);
  partitions[static_cast<size_t>(axis)] = std::max<int64_t>(1, std::min(parts, shape[axis]));
  return partitions;
}

// `axis`, counted from the front.
Result<int> Axis(const Shape& shape, int axis) {
  const int front = axis < 0 ? axis + shape.rank() : axis;
  if (front >= 0 && front < shape.rank()) return front;
  return InvalidArgument("Cannot partition variable along axis " + std::to_string(axis) +
                         " when shape is only " + shape.ToString());
}

// A partitioner's sizes; `name` is its own.
Status CheckPositive(const char* name, const char* what, int64_t value) {
  if (value > 0) return Status();
  return InvalidArgument(std::string(name) + ": " + what + " is " + std::to_string(value) +
                         "; it must be positive");
}

Result<int64_t> ElementBytes(const char* name, DType dtype, int64_t bytes_per_string_element) {
  MG_RETURN_IF_ERROR(CheckPositive(name, "bytes_per_string_element", bytes_per_string_element));
  if (dtype == DT_STRING) return bytes_per_string_element;
  if (const auto size = static_cast<int64_t>(DTypeSize(dtype)); size > 0) return size;
  return InvalidArgument(std::string(name) + ": variables of type " +
                         std::string(DTypeName(dtype)) + " have no size");
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Partitioner FixedSizePartitioner(int64_t num_shards, int axis) {
  return [=](const Shape& shape, DType) -> Result<std::vector<int64_t>> {
    MG_RETURN_IF_ERROR(CheckPositive("FixedSizePartitioner", "num_shards", num_shards));
    MG_ASSIGN_OR_RETURN(const int along, Axis(shape, axis));
    return Along(shape, along, num_shards);
  };
}

Partitioner MinMaxVariablePartitioner(int64_t max_partitions, int axis, int64_t min_slice_size,
                                      int64_t bytes_per_string_element) {
  return [=](const Shape& shape, DType dtype) -> Result<std::vector<int64_t>> {
    constexpr char kName[] = "MinMaxVariablePartitioner";
    MG_RETURN_IF_ERROR(CheckPositive(kName, "max_partitions", max_partitions));
    MG_RETURN_IF_ERROR(CheckPositive(kName, "min_slice_size", min_slice_size));
    MG_ASSIGN_OR_RETURN(const int64_t element_bytes,
                        ElementBytes(kName, dtype, bytes_per_string_element));
    MG_ASSIGN_OR_RETURN(const int along, Axis(shape, axis));
    return Along(
        shape, along,
        std::min(max_partitions, CeilDiv(shape.elements() * element_bytes, min_slice_size)));
  };
}

Partitioner VariableAxisSizePartitioner(int64_t max_shard_bytes, int axis, int64_t max_shards,
                                        int64_t bytes_per_string_element) {
  return [=](const Shape& shape, DType dtype) -> Result<std::vector<int64_t>> {
    constexpr char kName[] = "VariableAxisSizePartitioner";
    MG_RETURN_IF_ERROR(CheckPositive(kName, "max_shard_bytes", max_shard_bytes));
    MG_ASSIGN_OR_RETURN(const int64_t element_bytes,
                        ElementBytes(kName, dtype, bytes_per_string_element));
    if (max_shards != 0) MG_RETURN_IF_ERROR(CheckPositive(kName, "max_shards", max_shards));
    MG_ASSIGN_OR_RETURN(const int along, Axis(shape, axis));
    if (shape.elements() == 0) return Along(shape, along, 1);
    const int64_t slice_bytes = shape.elements() / shape[along] * element_bytes;
    const int64_t slices_per_shard = std::max<int64_t>(1, max_shard_bytes / slice_bytes);
    const int64_t shards = CeilDiv(shape[along], slices_per_shard);
    return Along(shape, along, max_shards > 0 ? std::min(max_shards, shards) : shards);
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
