// Sparse tensors, each three tensors: `indices` (int64 [n, rank], a row for each element), `values`
// [n] and `shape` (int64 [rank]). What embeddings and sparse features need: SparseReshape,
// SparseReorder, SparseConcat, SparseSplit, SparseSlice, SparseFillEmptyRows, SparseToDense,
// SparseReduceSum, SparseTensorDenseMatMul; SparseAdd, SparseSparseMaximum and Minimum,
// SparseTensorDenseAdd, SparseDenseCwiseAdd, Mul and Div, SparseSoftmax; SparseCross, also V2 and
// Hashed; DenseToDense-, DenseToSparse- and SparseToSparseSetOperation, and SetSize.
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
// Of elements at the same place the sum, left out where its magnitude is below `thresh`, a scalar;
// elements that only one has as they are. Both in the order of their indices.
SparseTensor SparseAdd(const Scope& scope, const SparseTensor& a, const SparseTensor& b,
                       const Output& thresh);
// `b` with the values of `a` added.
Output SparseTensorDenseAdd(const Scope& scope, const SparseTensor& a, const Output& b);
// Over the elements of each row of the last dimension.
SparseTensor SparseSoftmax(const Scope& scope, const SparseTensor& input);
// The matrix product a * b, where either may be transposed.
Output SparseTensorDenseMatMul(const Scope& scope, const SparseTensor& a, const Output& b,
                               bool adjoint_a = false, bool adjoint_b = false);

}  // namespace monograph
