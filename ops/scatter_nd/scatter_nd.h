// Slices of a tensor by vectors of indices: GatherNd, ResourceGatherNd, ScatterNd,
// TensorScatterUpdate and its relatives, and the ops that change rows of a tensor "in place"
// (InplaceUpdate, InplaceAdd, InplaceSub, DeepCopy).
//
// `indices` has the shape [..., depth]: each vector of its last dimension names one element of the
// first `depth` dimensions. What is out of range fails the step with InvalidArgument. Where a slice
// is named twice, updates happen in their order.
#pragma once

#include "graph/scope.h"

namespace monograph {

// The slices of `params`: shape indices.shape[:-1] + params.shape[depth:].
Output GatherNd(const Scope& scope, const Output& params, const Output& indices);
// Those of a variable, without reading all of it. The gradient is the handle's.
Output ResourceGatherNd(const Scope& scope, const Output& handle, const Output& indices,
                        DType dtype);
// Zeros of `shape`, to which `updates` are added.
Output ScatterNd(const Scope& scope, const Output& indices, const Output& updates,
                 const Output& shape);
// `tensor` with the slices replaced, increased or decreased by `updates`.
Output TensorScatterUpdate(const Scope& scope, const Output& tensor, const Output& indices,
                           const Output& updates);
Output TensorScatterAdd(const Scope& scope, const Output& tensor, const Output& indices,
                        const Output& updates);
Output TensorScatterSub(const Scope& scope, const Output& tensor, const Output& indices,
                        const Output& updates);

}  // namespace monograph
