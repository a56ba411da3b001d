// Attention, as an op that never holds the weights of all pairs of tokens at once.
#pragma once

#include "graph/scope.h"

namespace monograph {

// Which columns (tokens of key and value) a row (a token of query) sees: by default all.
struct AttentionMask {
  // int32 [n]: of sequence i the first lengths[i] columns, 0 to all of them; what lies behind may
  // be any number, and its gradients are 0. A row that sees nothing is 0. On CPUs a length that
  // cannot be is InvalidArgument; GPUs take the nearest that can.
  Output lengths;
  bool causal = false;  // row i sees none behind column i
};

// For each head softmax(scale * query key^T) value, where query is [n, rows, heads, size], key and
// value are [n, columns, heads, size], and the result is as query: heads lie as a dense layer
// leaves them. Of float, bfloat16 or half, with weights and sums in float. Its gradient is an op,
// too, and has none itself.
Output Attention(const Scope& scope, const Output& query, const Output& key, const Output& value,
                 float scale, const AttentionMask& mask = {});

}  // namespace monograph
