// Updates slices of a tensor in the order of their indices. Indices are first turned into slice
// numbers, a few at a time, so that the loop over elements is compiled only per update and element
// type.
#pragma once

#include <cstdint>
#include <string>

#include "ops/cpu/element_types_cpu.h"

namespace monograph {

enum class SliceUpdate : uint8_t { kSet, kAdd, kSub, kMul, kDiv, kMin, kMax };

// Changes the n slices places[i] of `table`, each of `size` elements, by what begins at element
// i * step of `updates`.
using CombineFn = void (*)(void* table, const int64_t* places, int64_t n, const void* updates,
                           int64_t step, int64_t size);

// nullptr for a type that cannot be changed so. kSet takes all types, strings too; kAdd strings and
// booleans, too.
CombineFn CombineOf(SliceUpdate update, DType dtype);

// Changes one slice, of an output if it has strings, with looks at cancellation within it.
void CombineSlice(const KernelContext& c, CombineFn combine, size_t element_bytes, void* table,
                  int64_t place, const void* update, int64_t size);

// The number of indices that name one slice: the last dimension; kMaxRank + 1 for any that no
// tensor has as many dimensions for. REQUIRES: rank >= 1.
inline int DepthOf(const Tensor& indices) {
  const int64_t depth = indices.shape()[indices.shape().rank() - 1];
  return static_cast<int>(std::min<int64_t>(depth, kMaxRank + 1));
}

// Whether `indices` name slices of a tensor of `shape`; for updates, whether `updates` has the
// shape of these slices. `whole` is what errors call the tensor.
Status CheckNdShapes(const Shape& shape, const Shape& indices, const Shape& updates,
                     const std::string& whole);
// These return Cancelled once the step is aborted: indices are not all checked then.
// Whether each of them is in [0, limit).
Status CheckRowIndices(const KernelContext& c, int64_t limit, const Tensor& indices);
// Whether each vector of them names a slice of a tensor of that shape.
Status CheckNdIndices(const KernelContext& c, const Shape& shape, const Tensor& indices);

// The numbers of slices [first, first + n) that `indices` name, which have been checked.
void NdPlaces(const Shape& shape, const Tensor& indices, int depth, int64_t first, int64_t n,
              int64_t* places);

// Changes the n slices of `table`, a tensor of `shape`, that checked `indices` name: `depth` of
// them name a slice; 0: one per row. Looks at cancellation.
void CombineNd(const KernelContext& c, CombineFn combine, void* table, const Shape& shape,
               const Tensor& indices, int depth, int64_t n, const void* updates,
               size_t element_bytes, int64_t step, int64_t size);

}  // namespace monograph
