// Allocate looks in three places in turn: this thread's cache (small classes only, no lock), the
// free list of the size class (a spinlock), and memory that was mapped but not yet handed out
// (Carve). Blocks move between a cache and its class in batches, so that one lock serves many
// blocks. Blocks have no header, which would spoil their alignment: Deallocate is told the size and
// computes the class from it.
#include "base/pool_allocator.h"

#include <sys/mman.h>

#include <bit>

namespace monograph {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallestBlock = 128;

// Class index and the block size of that class: 128 B steps up to 1 KiB, then eight steps per power
// of two.
struct SizeClass {
  int index;
  size_t bytes;
};

inline SizeClass ClassOf(size_t bytes) {
  if (bytes <= 1024) {
    const size_t steps =
        bytes <= kSmallestBlock ? 1 : (bytes + kSmallestBlock - 1) / kSmallestBlock;
    return {static_cast<int>(steps), steps * kSmallestBlock};
  }
  const int log2 = std::bit_width(bytes - 1) - 1;  // bytes in (2^log2, 2^(log2+1)]
  const size_t step = size_t{1} << (log2 - 3);
  const size_t steps = (bytes - (size_t{1} << log2) + step - 1) / step;  // 1..8
  return {(log2 - 9) * 8 + static_cast<int>(steps), (size_t{1} << log2) + steps * step};
}

}  // namespace

// Gives a thread's cache back when the thread ends.
struct PoolAllocator::CacheOwner {
  PoolAllocator* pool = nullptr;
  ThreadCache* cache = nullptr;
  bool ended = false;
  // The cache of this thread, read without the guard and destructor of a non-trivial thread_local.
  static thread_local ThreadCache* current;
  ~CacheOwner() {
    ended = true;
    current = nullptr;
    if (cache != nullptr) pool->DropCache(cache);
  }
};

constinit thread_local PoolAllocator::ThreadCache* PoolAllocator::CacheOwner::current = nullptr;

PoolAllocator::PoolAllocator(std::string name, bool thread_caches)
    : name_(std::move(name)), thread_caches_(thread_caches) {}

PoolAllocator::ThreadCache* PoolAllocator::Cache() {
  if (CacheOwner::current != nullptr) [[likely]]
    return CacheOwner::current;
  static thread_local CacheOwner owner;
  if (owner.ended) return nullptr;
  owner.pool = this;
  owner.cache = new ThreadCache;
  CacheOwner::current = owner.cache;
  MutexLock lock(caches_mutex_);
  owner.cache->next = caches_;
  caches_ = owner.cache;
  return owner.cache;
}

void PoolAllocator::DropCache(ThreadCache* cache) {
  for (int index = 0; index < kCachedClasses; ++index) Spill(cache, index, cache->count[index]);
  {
    MutexLock lock(caches_mutex_);
    ended_in_use_ += cache->in_use.load(std::memory_order_relaxed);  // this thread's own
    ThreadCache** link = &caches_;
    while (*link != cache) link = &(*link)->next;
    *link = cache->next;
  }
  delete cache;
}

// Takes a batch from the class, or one new block if the class has none. Counts nothing as in use.
void* PoolAllocator::Refill(ThreadCache* cache, int index, size_t bytes) {
  Class& cls = classes_[static_cast<size_t>(index)];
  const auto i = static_cast<size_t>(index);
  {
    MutexLock lock(cls.lock);
    while (cls.free != nullptr && cache->count[i] < kCacheBatch) {
      FreeBlock* block = cls.free;
      cls.free = block->next;
      block->next = cache->free[i];
      cache->free[i] = block;
      ++cache->count[i];
    }
  }
  if (cache->free[i] == nullptr) return Carve(bytes);
  FreeBlock* block = cache->free[i];
  cache->free[i] = block->next;
  --cache->count[i];
  return block;
}

void PoolAllocator::Spill(ThreadCache* cache, int index, int blocks) {
  const auto i = static_cast<size_t>(index);
  if (blocks == 0) return;
  FreeBlock* first = cache->free[i];
  FreeBlock* last = first;
  for (int k = 1; k < blocks; ++k) last = last->next;
  cache->free[i] = last->next;
  cache->count[i] -= blocks;
  Class& cls = classes_[i];
  MutexLock lock(cls.lock);
  last->next = cls.free;
  cls.free = first;
}

PoolAllocator::~PoolAllocator() {
  for (const Mapping& mapping : mappings_) munmap(mapping.data, mapping.bytes);
}

void* PoolAllocator::Map(size_t bytes) {
  // Over-map by one huge page and trim, so that the block starts on a huge-page boundary.
  const size_t total = bytes + kHugePage;
  void* raw = mmap(nullptr, total, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(raw);
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + kHugePage - 1) &
                                          ~(kHugePage - 1));
  if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
  char* end = begin + total;
  if (aligned + bytes < end) munmap(aligned + bytes, static_cast<size_t>(end - (aligned + bytes)));
  madvise(aligned, bytes, MADV_HUGEPAGE);
  bytes_mapped_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);  // a counter
  mappings_.push_back({aligned, bytes});
  return aligned;
}

void* PoolAllocator::Carve(size_t bytes) {
  MutexLock lock(map_mutex_);
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
  if (thread_caches_ && size.index < kCachedClasses) {
    if (ThreadCache* cache = Cache()) {
      const auto i = static_cast<size_t>(size.index);
      void* data = cache->free[i];
      if (data != nullptr) [[likely]] {
        cache->free[i] = cache->free[i]->next;
        __builtin_prefetch(cache->free[i], 1);  // the next one
        --cache->count[i];
      } else {
        data = Refill(cache, size.index, size.bytes);
        if (data == nullptr) return nullptr;
      }
      // Only this thread writes its in_use, so no read-modify-write is needed; bytes_in_use may
      // read a value that is a little old.
      const int64_t in_use = cache->in_use.load(std::memory_order_relaxed);
      cache->in_use.store(in_use + static_cast<int64_t>(size.bytes), std::memory_order_relaxed);
      return data;
    }
  }
  Class& cls = classes_[static_cast<size_t>(size.index)];
  {
    MutexLock lock(cls.lock);
    cls.in_use += static_cast<int64_t>(size.bytes);
    if (cls.free != nullptr) {
      FreeBlock* block = cls.free;
      cls.free = block->next;
      return block;
    }
  }
  void* block = Carve(size.bytes);
  if (block == nullptr) {
    MutexLock lock(cls.lock);
    cls.in_use -= static_cast<int64_t>(size.bytes);
  }
  return block;
}

void PoolAllocator::Deallocate(void* data, size_t bytes) noexcept {
  if (data == nullptr) return;
  const SizeClass size = ClassOf(bytes);
  auto* block = static_cast<FreeBlock*>(data);
  if (thread_caches_ && size.index < kCachedClasses) {
    if (ThreadCache* cache = Cache()) {
      const auto i = static_cast<size_t>(size.index);
      block->next = cache->free[i];
      cache->free[i] = block;
      // As in Allocate: only this thread writes it. Negative if other threads took what it frees.
      const int64_t in_use = cache->in_use.load(std::memory_order_relaxed);
      cache->in_use.store(in_use - static_cast<int64_t>(size.bytes), std::memory_order_relaxed);
      if (++cache->count[i] >= 4 * kCacheBatch) Spill(cache, size.index, 2 * kCacheBatch);
      return;
    }
  }
  Class& cls = classes_[static_cast<size_t>(size.index)];
  MutexLock lock(cls.lock);
  block->next = cls.free;
  cls.free = block;
  cls.in_use -= static_cast<int64_t>(size.bytes);
}

int64_t PoolAllocator::bytes_in_use() const {
  int64_t total = 0;
  {
    MutexLock lock(caches_mutex_);
    total += ended_in_use_;
    for (const ThreadCache* cache = caches_; cache != nullptr; cache = cache->next) {
      total += cache->in_use.load(std::memory_order_relaxed);  // may be a little old, see Allocate
    }
  }
  for (const Class& cls : classes_) {
    MutexLock lock(cls.lock);
    total += cls.in_use;
  }
  return total;
}

Allocator* HostAllocator() {
  static auto* allocator =
      new PoolAllocator("host", /*thread_caches=*/true);  // outlives every static tensor
  return allocator;
}

}  // namespace monograph
