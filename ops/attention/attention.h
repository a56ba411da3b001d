// Attention, as an op that never holds the weights of all pairs of tokens at once.
#pragma once

#include "graph/scope.h"

namespace monograph {

// For each head softmax(scale * query key^T) value, where query is [n, rows, heads, size], key and
// value are [n, columns, heads, size], and the result is as query: heads lie as a dense layer
// leaves them. Of float, bfloat16 or half, with weights and sums in float. Its gradient is an op,
// too, and has none itself.
Output Attention(const Scope& scope, const Output& query, const Output& key, const Output& value,
                 float scale);

}  // namespace monograph
