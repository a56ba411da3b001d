// PoolAllocator: size-class pool over 2 MiB-aligned, huge-page-advised mappings.
//
// Sizes are rounded up to one of eight classes per power of two (at most 12.5 % waste). A class up
// to 2 MiB is carved from shared 2 MiB chunks; a larger one is a mapping of its own. Freed blocks
// go to their class's list, so that a steady step faults no page; large ones, and chunks of which
// every block is free, are returned to the system only where something else would not fit. One
// spinlock per class; with `thread_caches`, each thread keeps some blocks of up to 1 KiB for
// itself, and most of their traffic takes no lock.
//
// What would pass the limit is refused before it is mapped, and so is what the system has not got
// (looked up for large blocks of 64 MiB or more). Blocks of up to 4 KiB, of which the runtime
// itself is made, are never refused.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/memory_holder.h"
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
  // For the runtime's own structures, without which it could not even fail a step: refused only if
  // the system refuses. Counts as others do.
  void* AllocateAlways(size_t bytes);

  // Bytes, rounded to classes, that are given out now; and that are mapped from the system.
  int64_t bytes_in_use() const;
  // Relaxed: a counter.
  int64_t bytes_mapped() const { return bytes_mapped_.load(std::memory_order_relaxed); }

  // A block of more bytes is a large one.
  static constexpr size_t kLarge = size_t{2} << 20;

  // Of all that is mapped and reserved. Any time; what is there stays.
  void SetLimit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  // Relaxed: it is set before there are sessions.
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // Of the limit, for a MemoryHolder that shares: three quarters, while others do.
  static constexpr double kShare = 0.75;

  // Room within the limit, and within the share of the holder that asks, for memory that comes from
  // elsewhere (strings, places in a queue); given back with the last reference, which the pool
  // outlives. nullptr if there is none; with `always` it counts all the same.
  std::shared_ptr<void> Reserve(size_t bytes, bool always = false);
  // Bytes for which there is such room now.
  int64_t bytes_reserved() const;

  // Makes `holder` the one who holds the large block that `data` is in; nothing happens to others.
  void SetHolder(const void* data, std::shared_ptr<MemoryHolder> holder);
  // The same, with the holder of the block that `like` is in.
  void SetHolderLike(const void* data, const void* like);

  // Why `bytes` were refused: "4.0 TiB are more than the 12.1 GiB that are free of 22.0 GiB
  // (--memory_limit); session 17 holds 5.0 GiB, variable 'w' 3.1 GiB".
  std::string Explain(size_t bytes) const;

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
  // A large block.
  struct Mapping {
    size_t bytes = 0;    // mapped
    size_t charged = 0;  // of these, what somebody has asked for so far: what may be in memory
    std::shared_ptr<MemoryHolder> holder = nullptr;  // of a block that is given out; may be nullptr
    bool given_out = false;
  };
  // Small blocks are carved from it.
  struct Chunk {
    char* data = nullptr;
    size_t carved = 0;  // bytes from its beginning
  };
  struct Reservation;
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
  // The following ones refuse nothing if `always`.
  void* Carve(size_t bytes, bool always = false);  // from the current chunk
  // `bytes`: of the class; `wanted`: what was asked for.
  void* AllocateLarge(int index, size_t bytes, size_t wanted, bool always = false);
  void DeallocateLarge(int index, size_t bytes, void* data) noexcept;
  // Whether `bytes` more may be charged, after free large blocks were unmapped if that helps.
  bool MakeRoom(size_t bytes) MG_REQUIRES(map_mutex_);
  // Unmaps free large blocks, the largest first, of `bytes` or all.
  void Trim(int64_t bytes) MG_REQUIRES(map_mutex_);
  // Unmaps the chunks of which every block is free. Looks at all free blocks, so it does nothing
  // unless these are `bytes` or more, and some more than after the last time.
  void TrimChunks(int64_t bytes) MG_REQUIRES(map_mutex_);
  int64_t BytesOfChunks() const MG_REQUIRES(map_mutex_);
  // Of small blocks.
  int64_t SmallInUse() const MG_EXCLUDES(caches_mutex_);
  // The large block that `data` is in, if it is given out; else nullptr.
  Mapping* Find(const void* data) MG_REQUIRES(map_mutex_);
  static void ChangeHolder(Mapping* mapping, std::shared_ptr<MemoryHolder> holder);
  bool PassesShare(const MemoryHolder* holder, size_t bytes) const;

  const std::string name_;
  std::array<Class, kClasses> classes_;
  std::atomic<int64_t> bytes_mapped_{0};
  std::atomic<int64_t> limit_{std::numeric_limits<int64_t>::max()};
  const bool thread_caches_;
  mutable Mutex caches_mutex_;
  ThreadCache* caches_ MG_GUARDED_BY(caches_mutex_) = nullptr;
  int64_t ended_in_use_ MG_GUARDED_BY(caches_mutex_) = 0;  // of threads that ended
  mutable Mutex map_mutex_;
  std::map<char*, Mapping> large_ MG_GUARDED_BY(map_mutex_);                // by address
  std::map<int, std::vector<char*>> free_large_ MG_GUARDED_BY(map_mutex_);  // by class
  int64_t large_in_use_ MG_GUARDED_BY(map_mutex_) = 0;
  // Of kLarge bytes; the last one is carved now. Those of [0] have the small classes, of which
  // threads keep free blocks, those of [1] the others, so that the former do not hold the latter.
  std::array<std::vector<Chunk>, 2> chunks_ MG_GUARDED_BY(map_mutex_);
  // The last TrimChunks: what it left free in chunks, and when it was.
  int64_t left_free_ MG_GUARDED_BY(map_mutex_) = 0;
  std::chrono::steady_clock::time_point looked_ MG_GUARDED_BY(map_mutex_){};
  int64_t charged_ MG_GUARDED_BY(map_mutex_) = 0;  // of the limit
  // A part of charged_, by holder's name; "" for none.
  std::map<std::string, int64_t> reserved_ MG_GUARDED_BY(map_mutex_);
};

// HostAllocator, whose limit is DefaultMemoryLimit() unless somebody sets another.
PoolAllocator& HostPool();

// What this process may take of the system's memory (base/system_memory.h): all but a reserve for
// code, connections and other programs, an eighth, at least 64 MiB and at most 2 GiB.
int64_t DefaultMemoryLimit();

}  // namespace monograph
