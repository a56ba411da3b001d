// Matrix products.
#pragma once

#include <string>

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

// A sum of products of one or two operands, as Einstein's convention writes it: "ij,jk->ik", also
// "bij,bjk->bik", "ij->ji", "ii->i", "...ij,...jk->...ik". Labels that the result lacks are summed.
// Gradients: without "..." and without a label twice in one operand.
Output Einsum(const Scope& scope, const Outputs& inputs, const std::string& equation);

}  // namespace monograph
