// Matrix products.
#pragma once

#include "graph/scope.h"

namespace monograph {

struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// a [m,k] times b [k,n] (each transposed first if asked). Types: floating, int32, int64.
Output MatMul(const Scope& scope, Output a, Output b, const MatMulOptions& options = {});

// The product of the last two dimensions; the others broadcast.
Output BatchMatMul(const Scope& scope, Output x, Output y, bool adj_x = false, bool adj_y = false);

}  // namespace monograph
