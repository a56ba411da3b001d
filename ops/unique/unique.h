// Ops on vectors taken as sets: Unique, ListDiff.
#pragma once

#include "graph/scope.h"

namespace monograph {

// The distinct elements of vector x in order of first appearance, and for each element of x where
// it went.
struct UniqueResult {
  Output y, idx;
};
UniqueResult Unique(const Scope& scope, const Output& x, DType out_idx = DT_INT32);

// The elements of vector x that y lacks, in order and with repetitions, and where in x they are.
struct ListDiffResult {
  Output out, idx;
};
ListDiffResult ListDiff(const Scope& scope, const Output& x, const Output& y,
                        DType out_idx = DT_INT32);

}  // namespace monograph
