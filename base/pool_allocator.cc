#include "base/pool_allocator.h"

#include <sys/mman.h>

#include <bit>

namespace monograph {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallestBlock = 128;

// Class index and the block size of that class: 128 B steps up to 1 KiB, then eight steps per power of two.
struct SizeClass {
  int index;
  size_t bytes;
};

SizeClass ClassOf(size_t bytes) {
  if (bytes <= 1024) {
    const size_t steps = bytes <= kSmallestBlock ? 1 : (bytes + kSmallestBlock - 1) / kSmallestBlock;
    return {static_cast<int>(steps), steps * kSmallestBlock};
  }
  const int log2 = std::bit_width(bytes - 1) - 1;  // bytes in (2^log2, 2^(log2+1)]
  const size_t step = size_t{1} << (log2 - 3);
  const size_t steps = (bytes - (size_t{1} << log2) + step - 1) / step;  // 1..8
  return {(log2 - 9) * 8 + static_cast<int>(steps), (size_t{1} << log2) + steps * step};
}

class SpinGuard {
 public:
  explicit SpinGuard(std::atomic_flag& flag) : flag_(flag) {
    while (flag_.test_and_set(std::memory_order_acquire)) {
      while (flag_.test(std::memory_order_relaxed)) __builtin_ia32_pause();
    }
  }
  ~SpinGuard() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag& flag_;
};

}  // namespace

PoolAllocator::PoolAllocator(std::string name) : name_(std::move(name)) {}

PoolAllocator::~PoolAllocator() {
  for (const Mapping& mapping : mappings_) munmap(mapping.data, mapping.bytes);
}

void* PoolAllocator::Map(size_t bytes) {
  // Over-map by one huge page and trim, so that the block starts on a huge-page boundary.
  const size_t total = bytes + kHugePage;
  void* raw = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(raw);
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) & ~(kHugePage - 1));
  if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
  char* end = begin + total;
  if (aligned + bytes < end) munmap(aligned + bytes, static_cast<size_t>(end - (aligned + bytes)));
  madvise(aligned, bytes, MADV_HUGEPAGE);
  bytes_mapped_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  mappings_.push_back({aligned, bytes});
  return aligned;
}

void* PoolAllocator::Carve(size_t bytes) {
  std::lock_guard lock(map_mutex_);
  if (bytes > kHugePage) return Map((bytes + kHugePage - 1) & ~(kHugePage - 1));
  if (chunk_left_ < bytes) {
    void* chunk = Map(kHugePage);
    if (chunk == nullptr) return nullptr;
    chunk_ = static_cast<char*>(chunk);
    chunk_left_ = kHugePage;
  }
  void* block = chunk_;
  chunk_ += bytes;
  chunk_left_ -= bytes;
  return block;
}

void* PoolAllocator::Allocate(size_t bytes) {
  if (bytes > (size_t{1} << 46)) return nullptr;
  const SizeClass size = ClassOf(bytes);
  Class& cls = classes_[static_cast<size_t>(size.index)];
  {
    SpinGuard guard(cls.lock);
    cls.in_use += static_cast<int64_t>(size.bytes);
    if (cls.free != nullptr) {
      FreeBlock* block = cls.free;
      cls.free = block->next;
      return block;
    }
  }
  void* block = Carve(size.bytes);
  if (block == nullptr) {
    SpinGuard guard(cls.lock);
    cls.in_use -= static_cast<int64_t>(size.bytes);
  }
  return block;
}

void PoolAllocator::Deallocate(void* data, size_t bytes) noexcept {
  if (data == nullptr) return;
  const SizeClass size = ClassOf(bytes);
  Class& cls = classes_[static_cast<size_t>(size.index)];
  auto* block = static_cast<FreeBlock*>(data);
  SpinGuard guard(cls.lock);
  block->next = cls.free;
  cls.free = block;
  cls.in_use -= static_cast<int64_t>(size.bytes);
}

int64_t PoolAllocator::bytes_in_use() const {
  int64_t total = 0;
  for (const Class& cls : classes_) {
    SpinGuard guard(const_cast<std::atomic_flag&>(cls.lock));
    total += cls.in_use;
  }
  return total;
}

Allocator* HostAllocator() {
  static auto* allocator = new PoolAllocator("host");  // outlives every static tensor
  return allocator;
}

}  // namespace monograph
