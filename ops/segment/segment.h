// Reductions of the rows of `data` that have the same segment id.
//
//   SegmentSum, -Mean, -Prod, -Min, -Max      ids ascend; the last one tells how many rows there are
//   UnsortedSegmentProd, -Min, -Max           ids in any order, as UnsortedSegmentSum (ops/gather):
//                                             those below 0 are dropped
//   SparseSegmentSum, -Mean, -SqrtN           of the rows that `indices` name; ids ascend. With
//                                             WithNumSegments behind the name the number of rows is
//                                             given, without it the last id tells it
//   SparseSegmentMeanGrad, -SqrtNGrad, -SumGrad   their gradients, as one tensor
//
// A row that no id names is 0; of SegmentProd 1, of Unsorted* what the reduction begins with.
#pragma once

#include "graph/scope.h"

namespace monograph {

Output SegmentSum(const Scope& scope, const Output& data, const Output& segment_ids);
Output SegmentMean(const Scope& scope, const Output& data, const Output& segment_ids);
Output SegmentProd(const Scope& scope, const Output& data, const Output& segment_ids);
Output SegmentMin(const Scope& scope, const Output& data, const Output& segment_ids);
Output SegmentMax(const Scope& scope, const Output& data, const Output& segment_ids);
Output UnsortedSegmentProd(const Scope& scope, const Output& data, const Output& segment_ids,
                           const Output& num_segments);
Output UnsortedSegmentMin(const Scope& scope, const Output& data, const Output& segment_ids,
                          const Output& num_segments);
Output UnsortedSegmentMax(const Scope& scope, const Output& data, const Output& segment_ids,
                          const Output& num_segments);
Output SparseSegmentSum(const Scope& scope, const Output& data, const Output& indices,
                        const Output& segment_ids);
Output SparseSegmentMean(const Scope& scope, const Output& data, const Output& indices,
                         const Output& segment_ids);
Output SparseSegmentSqrtN(const Scope& scope, const Output& data, const Output& indices,
                          const Output& segment_ids);

}  // namespace monograph
