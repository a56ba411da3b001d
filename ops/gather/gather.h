// Ops that pick and scatter by index: Gather, GatherV2, OneHot, DynamicPartition, DynamicStitch,
// UnsortedSegmentSum.
// An index out of range fails the step with InvalidArgument that names it.
#pragma once

#include "graph/scope.h"

namespace monograph {

struct Gradient;  // graph/gradients.h

// Slices of `params` along `axis`, at `indices` (int32 or int64 of any shape, which takes the place
// of that dimension).
Output Gather(const Scope& scope, const Output& params, const Output& indices, int axis = 0);
// Rows of `depth` elements: `on_value` at the index, `off_value` elsewhere (also where the index is
// out of range).
Output OneHot(const Scope& scope, const Output& indices, const Output& depth,
              const Output& on_value, const Output& off_value, int axis = -1);
Output OneHot(const Scope& scope, const Output& indices, int depth, DType dtype = DT_FLOAT);
// `data` in `num_partitions` parts: part p holds, in order, the rows of `data` whose entry in
// `partitions` (int32, of a shape with which the shape of `data` begins) is p.
Outputs DynamicPartition(const Scope& scope, const Output& data, const Output& partitions,
                         int num_partitions);
// merged[indices[m][i...]] = data[m][i..., ...]; where indices repeat, the last wins.
Output DynamicStitch(const Scope& scope, const Outputs& indices, const Outputs& data);
// Row i of the result is the sum of the rows of `data` whose segment id is i. Negative ids are
// dropped.
Output UnsortedSegmentSum(const Scope& scope, const Output& data, const Output& segment_ids,
                          const Output& num_segments);

// The gradient of what rows were taken from at `indices` (of any shape): `gradient`, that of the
// rows that were taken, as rows one below the other.
Gradient RowGradient(const Scope& scope, const Output& gradient, const Output& indices);

}  // namespace monograph
