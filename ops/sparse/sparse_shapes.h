// What the definitions of sparse ops share.
#pragma once

#include "graph/op_def.h"
#include "graph/shape_inference.h"

namespace monograph::ops::sparse {

void DefineArithmetic(OpRegistry* registry);    // arithmetic.cc
void DefineCrossAndSets(OpRegistry* registry);  // cross_and_sets.cc

struct Known {
  int64_t elements, rank;  // -1: not known
};

// What inputs `first` (indices), and behind it `values` and `shape`, tell together.
Result<Known> KnownOf(ShapeContext& c, int first, bool has_values = true);

}  // namespace monograph::ops::sparse
