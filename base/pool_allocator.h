// PoolAllocator: size-class pool over 2 MiB-aligned, huge-page-advised mappings.
//
// Sizes are rounded up to one of eight classes per power of two (at most 12.5 % waste). A class up
// to 2 MiB is carved from shared 2 MiB chunks; a larger one is a mapping of its own. Freed blocks
// go to their class's list and are never returned to the system, so that a steady step faults no
// page. One spinlock per class; with `thread_caches`, each thread keeps some blocks of up to 1 KiB
// for itself, and most of their traffic takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/buffer.h"

namespace monograph {

class PoolAllocator : public Allocator {
 public:
  // Thread caches are for the one pool that lives as long as the process.
  explicit PoolAllocator(std::string name, bool thread_caches = false);
  ~PoolAllocator() override;
  PoolAllocator(const PoolAllocator&) = delete;
  PoolAllocator& operator=(const PoolAllocator&) = delete;

  std::string name() const override { return name_; }
  void* Allocate(size_t bytes) override;
  void Deallocate(void* data, size_t bytes) noexcept override;

  // Bytes, rounded to classes, that are given out now; and mapped from the system so far.
  int64_t bytes_in_use() const;
  int64_t bytes_mapped() const { return bytes_mapped_.load(std::memory_order_relaxed); }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  struct alignas(64) Class {
    std::atomic_flag lock = ATOMIC_FLAG_INIT;
    FreeBlock* free = nullptr;
    int64_t in_use = 0;  // guarded by lock
  };
  struct Mapping {
    void* data;
    size_t bytes;
  };
  static constexpr int kClasses = 8 * 42;

  // A thread's own blocks of the first kCachedClasses classes.
  static constexpr int kCachedClasses = 9;
  static constexpr int kCacheBatch = 32;  // blocks that move at once between a cache and its class
  struct ThreadCache {
    FreeBlock* free[kCachedClasses] = {};
    int count[kCachedClasses] = {};
    std::atomic<int64_t> in_use{
        0};  // given out minus taken back by this thread, in bytes; only it writes
    ThreadCache* next = nullptr;  // of all caches; guarded by caches_mutex_
  };
  struct CacheOwner;

  // This thread's cache; nullptr while the thread ends.
  ThreadCache* Cache();
  void DropCache(ThreadCache* cache);
  void* Refill(ThreadCache* cache, int index, size_t bytes);
  void Spill(ThreadCache* cache, int index, int blocks);

  void* Map(size_t bytes);
  void* Carve(size_t bytes);  // from the current chunk

  const std::string name_;
  std::array<Class, kClasses> classes_;
  std::atomic<int64_t> bytes_mapped_{0};
  const bool thread_caches_;
  mutable std::mutex caches_mutex_;
  ThreadCache* caches_ = nullptr;  // guarded by caches_mutex_
  int64_t ended_in_use_ = 0;       // of threads that ended; guarded by caches_mutex_
  std::mutex map_mutex_;
  std::vector<Mapping> mappings_;  // guarded by map_mutex_
  char* chunk_ = nullptr;          // guarded by map_mutex_
  size_t chunk_left_ = 0;          // guarded by map_mutex_
};

}  // namespace monograph
