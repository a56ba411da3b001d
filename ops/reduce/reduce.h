// Reductions over axes: Sum, Mean, Max, Min, Prod, All, Any, ArgMax, ArgMin; Cumsum, Cumprod.
//
// `axes` is an int32 or int64 scalar or vector (negative: from the end). The order of additions is
// fixed by the shape alone: the result has the same bits for any number of threads.
#pragma once

#include "graph/scope.h"

namespace monograph {

Output Sum(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
Output Mean(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
Output Max(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
Output Min(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
Output Prod(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
Output All(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
Output Any(const Scope& scope, const Output& input, const Output& axes, bool keep_dims = false);
// The root of the sum of squares.
Output EuclideanNorm(const Scope& scope, const Output& input, const Output& axes,
                     bool keep_dims = false);

// Over constant axes, and over all of them (tf.reduce_sum(x), tf.reduce_mean(x)). All: the rank
// must be known, or is asked for by the step.
Output Sum(const Scope& scope, const Output& input, std::initializer_list<int64_t> axes,
           bool keep_dims = false);
Output Mean(const Scope& scope, const Output& input, std::initializer_list<int64_t> axes,
            bool keep_dims = false);
Output Max(const Scope& scope, const Output& input, std::initializer_list<int64_t> axes,
           bool keep_dims = false);
Output ReduceSum(const Scope& scope, const Output& input);
Output ReduceMean(const Scope& scope, const Output& input);
Output ReduceMax(const Scope& scope, const Output& input);
// An int32 vector of all axes of `input`: a constant where its rank is known.
Output AllAxes(const Scope& scope, const Output& input);

// Where along `axis` the largest (smallest) element is; the first of equals.
Output ArgMax(const Scope& scope, const Output& input, int axis, DType output_type = DT_INT64);
Output ArgMin(const Scope& scope, const Output& input, int axis, DType output_type = DT_INT64);
// Running sums along `axis`; exclusive: element k without itself; reverse: from the end.
Output Cumsum(const Scope& scope, const Output& x, const Output& axis, bool exclusive = false,
              bool reverse = false);
// Running products.
Output Cumprod(const Scope& scope, const Output& x, const Output& axis, bool exclusive = false,
               bool reverse = false);
// Logarithms of running sums, of elements that are logarithms.
Output CumulativeLogsumexp(const Scope& scope, const Output& x, const Output& axis,
                           bool exclusive = false, bool reverse = false);

}  // namespace monograph
