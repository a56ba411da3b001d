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
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"

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
  // Relaxed: a counter.
  int64_t bytes_mapped() const { return bytes_mapped_.load(std::memory_order_relaxed); }

 private:
  struct FreeBlock {
    FreeBlock* next;
  };
  // Held for a few instructions, for which putting a thread to sleep would take too long.
  class MG_CAPABILITY SpinLock {
   public:
    void Lock() MG_ACQUIRE() {
      while (flag_.test_and_set(std::memory_order_acquire)) {
        // Relaxed: it only waits; the acquiring test_and_set decides.
        while (flag_.test(std::memory_order_relaxed)) __builtin_ia32_pause();
      }
    }
    void Unlock() MG_RELEASE() { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
  };
  struct alignas(64) Class {
    mutable SpinLock lock;
    FreeBlock* free MG_GUARDED_BY(lock) = nullptr;
    int64_t in_use MG_GUARDED_BY(lock) = 0;
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
    // Given out minus taken back by this thread, in bytes; only it writes.
    std::atomic<int64_t> in_use{0};
    ThreadCache* next = nullptr;  // in the list of all caches, with caches_mutex_ held
  };
  struct CacheOwner;

  // This thread's cache; nullptr while the thread ends.
  ThreadCache* Cache();
  void DropCache(ThreadCache* cache);
  void* Refill(ThreadCache* cache, int index, size_t bytes);
  void Spill(ThreadCache* cache, int index, int blocks);

  void* Map(size_t bytes) MG_REQUIRES(map_mutex_);
  void* Carve(size_t bytes);  // from the current chunk

  const std::string name_;
  std::array<Class, kClasses> classes_;
  std::atomic<int64_t> bytes_mapped_{0};
  const bool thread_caches_;
  mutable Mutex caches_mutex_;
  ThreadCache* caches_ MG_GUARDED_BY(caches_mutex_) = nullptr;
  int64_t ended_in_use_ MG_GUARDED_BY(caches_mutex_) = 0;  // of threads that ended
  Mutex map_mutex_;
  std::vector<Mapping> mappings_ MG_GUARDED_BY(map_mutex_);
  char* chunk_ MG_GUARDED_BY(map_mutex_) = nullptr;
  size_t chunk_left_ MG_GUARDED_BY(map_mutex_) = 0;
};

}  // namespace monograph
