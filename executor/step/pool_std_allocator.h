// PoolStdAllocator: the host pool (base/pool_allocator.h) as the standard library's containers and
// pointers know allocators, so that a steady step takes nothing from the heap.
#pragma once

#include <cstddef>

#include "base/pool_allocator.h"
#include "base/status.h"

namespace monograph {

template <typename T>
struct PoolStdAllocator {
  using value_type = T;
  PoolStdAllocator() = default;
  template <typename U>
  PoolStdAllocator(const PoolStdAllocator<U>&) {}  // NOLINT(runtime/explicit)
  T* allocate(size_t n) {
    void* memory = HostPool().AllocateAlways(n * sizeof(T));
    if (memory == nullptr) FatalBug(__FILE__, __LINE__, "no memory for a step");
    return static_cast<T*>(memory);
  }
  void deallocate(T* p, size_t n) { HostPool().Deallocate(p, n * sizeof(T)); }
  friend bool operator==(const PoolStdAllocator&, const PoolStdAllocator&) { return true; }
};

}  // namespace monograph
