// Partitioners: into how many parts a large variable is cut, so that several parameter servers
// hold it together.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/status.h"

namespace monograph {

// The number of parts along each dimension; more than one along one dimension at most.
using Partitioner = std::function<Result<std::vector<int64_t>>(const Shape& shape, DType dtype)>;

// `num_shards` parts along `axis`, or as many as the dimension allows. InvalidArgument, when it is
// called, for a variable that lacks the axis; also below. A negative axis counts from the last.
Partitioner FixedSizePartitioner(int64_t num_shards, int axis = 0);
// At most `max_partitions` parts, of about `min_slice_size` bytes or more where more than one is
// made. `bytes_per_string_element`: what a string is taken to be, also below.
Partitioner MinMaxVariablePartitioner(int64_t max_partitions = 1, int axis = 0,
                                      int64_t min_slice_size = 256 << 10,
                                      int64_t bytes_per_string_element = 16);
// Parts of at most `max_shard_bytes`, as far as cutting along one axis allows; `max_shards` (0: no
// limit) goes before.
Partitioner VariableAxisSizePartitioner(int64_t max_shard_bytes, int axis = 0,
                                        int64_t max_shards = 0,
                                        int64_t bytes_per_string_element = 16);

// One part of a dimension.
struct PartRange {
  int64_t begin, size;
};
// `size` in `parts` ranges in order; the first ones are larger by one where it does not divide
// evenly, as in TensorFlow. REQUIRES: parts > 0.
std::vector<PartRange> CutDimension(int64_t size, int64_t parts);

}  // namespace monograph
