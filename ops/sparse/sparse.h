// Sparse tensors, each three tensors: `indices` (int64 [n, rank], a row for each element), `values`
// [n] and `shape` (int64 [rank]). What embeddings and sparse features need: SparseReshape,
// SparseReorder, SparseConcat, SparseSlice, SparseFillEmptyRows, SparseToDense, SparseReduceSum,
// SparseTensorDenseMatMul.
#pragma once

#include "graph/scope.h"

namespace monograph {

struct SparseTensor {
  Output indices, values, shape;
};

// `values` at `indices` in a tensor of `shape`, `default_value` elsewhere.
Output SparseToDense(const Scope& scope, const Output& indices, const Output& shape,
                     const Output& values, const Output& default_value,
                     bool validate_indices = true);
// Elements in the order of their indices, row by row.
SparseTensor SparseReorder(const Scope& scope, const SparseTensor& input);
// Rows without elements get one, `default_value` in column 0. `row_is_empty`: which did;
// `reverse_index_map`: where each element is now.
struct SparseFillEmptyRowsResult {
  SparseTensor output;
  Output row_is_empty, reverse_index_map;
};
SparseFillEmptyRowsResult SparseFillEmptyRows(const Scope& scope, const SparseTensor& input,
                                              const Output& default_value);
// The matrix product a * b, where either may be transposed.
Output SparseTensorDenseMatMul(const Scope& scope, const SparseTensor& a, const Output& b,
                               bool adjoint_a = false, bool adjoint_b = false);

}  // namespace monograph
