// What the kernels on sparse tensors share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu/element_types_cpu.h"
#include "ops/cpu/looks_cpu.h"

namespace monograph::ops::sparse {

void RegisterArithmetic(KernelRegistry* registry);  // arithmetic_cpu.cc
void RegisterCrosses(KernelRegistry* registry);     // cross_cpu.cc
void RegisterSets(KernelRegistry* registry);        // sets_cpu.cc

// A vector of dimensions, each not negative and so many elements that int64 counts them.
Result<std::vector<int64_t>> DimsOf(const Tensor& tensor, const char* name);

// Whether indices [n, rank] and values [n] fit a shape of that rank; each index lies within it.
// Cancelled once the step is aborted.
Status CheckSparse(const KernelContext& c, const Tensor& indices, const Tensor* values,
                   std::span<const int64_t> dims, bool inside = true);

void CopyElement(const KernelContext& c, const Tensor& from, int64_t i, Tensor* to, int64_t k);

// How row a of indices lies to row b: less than 0 before it, 0 at the same place, else behind it.
inline int CompareRows(const int64_t* a, const int64_t* b, int64_t rank) {
  for (int64_t d = 0; d < rank; ++d) {
    if (a[d] != b[d]) return a[d] < b[d] ? -1 : 1;
  }
  return 0;
}

// The elements by rows of `rank` indices, equal ones in their order. Cancelled once the step is
// aborted.
Result<std::vector<int64_t>> Sorted(const KernelContext& c, const int64_t* indices, int64_t n,
                                    int64_t rank);

}  // namespace monograph::ops::sparse
