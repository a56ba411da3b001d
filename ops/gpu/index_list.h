// Indices on a GPU: a list of any integer type, and the chains that its equal entries form, by
// which rows are added up in the order of the list, as on a CPU, by many threads and without
// atomics.
#pragma once

#include <cstdint>

#include "base/tensor.h"
#include "ops/gpu/launch.h"

namespace monograph::ops {

struct IndexList {
  const void* data = nullptr;
  DType dtype = DT_INT64;

  explicit IndexList(const Tensor& tensor) : data(tensor.raw()), dtype(tensor.dtype()) {}
  MG_HD int64_t operator[](int64_t i) const {
    switch (dtype) {
      case DT_INT32:
        return static_cast<const int32_t*>(data)[i];
      case DT_INT8:
        return static_cast<const int8_t*>(data)[i];
      case DT_UINT8:
        return static_cast<const uint8_t*>(data)[i];
      default:
        return static_cast<const int64_t*>(data)[i];
    }
  }
};

// For each position of a list: whether it is the first one with its index, and the next one. An
// index out of [0, limit) is in no chain.
struct Chains {
  const int32_t* next = nullptr;  // -1: the last one
  const int32_t* head = nullptr;  // 1: the first one

  // Calls fn(position) for the positions of the chain that begins at `first`, in order.
  template <typename Fn>
  MG_HD void Walk(int64_t first, const Fn& fn) const {
    for (int32_t i = static_cast<int32_t>(first); i >= 0; i = next[i]) fn(static_cast<int64_t>(i));
  }
};

// Each position looks for its neighbours by itself: n * n / 2 comparisons in all, where they are
// all different.
struct ChainBody {
  IndexList index;
  int64_t n, limit;
  int32_t *next, *head;

  MG_HD void operator()(int64_t i) const {
    const int64_t mine = index[i];
    int32_t follower = -1, first = 0;
    if (mine >= 0 && mine < limit) {
      first = 1;
      for (int64_t k = i - 1; k >= 0; --k) {
        if (index[k] != mine) continue;
        first = 0;
        break;
      }
      for (int64_t k = i + 1; k < n; ++k) {
        if (index[k] != mine) continue;
        follower = static_cast<int32_t>(k);
        break;
      }
    }
    next[i] = follower;
    head[i] = first;
  }
};

// `memory` keeps the chains; they may be used until it is let go.
inline Result<Chains> MakeChains(KernelContext& c, const Tensor& indices, int64_t limit,
                                 Tensor* memory) {
  const int64_t n = indices.elements();
  if (n > INT32_MAX) return InvalidArgument("more than 2^31 indices");
  MG_ASSIGN_OR_RETURN(*memory, c.AllocateTemp(DT_INT32, Shape{2 * n}));
  int32_t* next = memory->data<int32_t>();
  MG_RETURN_IF_ERROR(ForEach(c, n, ChainBody{IndexList(indices), n, limit, next, next + n}));
  return Chains{next, next + n};
}

}  // namespace monograph::ops
