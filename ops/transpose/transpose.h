// Ops that permute elements: Transpose, InvertPermutation, ReverseV2.
#pragma once

#include "graph/scope.h"

namespace monograph {

// Dimension i of the result is dimension perm[i] of x.
Output Transpose(const Scope& scope, const Output& x, const Output& perm);
Output Transpose(const Scope& scope, const Output& x, std::initializer_list<int64_t> perm);
// y with y[x[i]] = i, for a permutation x (int32 or int64 vector).
Output InvertPermutation(const Scope& scope, const Output& x);
// Reverses along each of `axis` (int32 or int64 vector).
Output Reverse(const Scope& scope, const Output& tensor, const Output& axis);

}  // namespace monograph
