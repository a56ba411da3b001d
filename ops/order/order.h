// Ops that order or count elements: TopK, TopKV2, NthElement, LowerBound, UpperBound, Bucketize,
// Bincount, HistogramFixedWidth.
#pragma once

#include <vector>

#include "graph/scope.h"

namespace monograph {

// The k largest elements of each row (the last dimension), largest first; of equal ones the first
// in the row comes first.
struct TopKResult {
  Output values, indices;
};
TopKResult TopK(const Scope& scope, const Output& input, const Output& k, bool sorted = true);
// Element n (from 0) of each row in ascending order, or in descending with `reverse`.
Output NthElement(const Scope& scope, const Output& input, const Output& n, bool reverse = false);
// For each of values [batch, n] the place in the same row of sorted_inputs [batch, m] before which
// it can be put: before those that are equal, or (UpperBound) behind them.
Output LowerBound(const Scope& scope, const Output& sorted_inputs, const Output& values,
                  DType out_type = DT_INT32);
Output UpperBound(const Scope& scope, const Output& sorted_inputs, const Output& values,
                  DType out_type = DT_INT32);
// For each element of `input` how many of the boundaries, which ascend, are not above it.
Output Bucketize(const Scope& scope, const Output& input, const std::vector<float>& boundaries);
// bins[i]: how often i stands in `arr`, or the sum of the weights there; `weights` may be empty.
Output Bincount(const Scope& scope, const Output& arr, const Output& size, const Output& weights);

}  // namespace monograph
