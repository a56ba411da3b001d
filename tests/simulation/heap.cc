#include "tests/simulation/heap.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// Relaxed: a counter.
std::atomic<int64_t> heap_bytes{0};

void* Count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  heap_bytes.fetch_add(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}

void Free(void* memory) noexcept {
  if (memory == nullptr) return;
  heap_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

// The other forms call these.
void* operator new(size_t bytes) { return Count(std::malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(align, (bytes + align - 1) / align * align));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace monograph::simulation {

int64_t HeapBytes() { return heap_bytes.load(std::memory_order_relaxed); }

}  // namespace monograph::simulation
