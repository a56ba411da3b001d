// GpuMemory: the memory of one logical GPU. PinnedMemory: host memory that copies run from.
//
// Both carve blocks from few large regions (best fit, neighbours join when freed) and give no
// region back, unless each block is to be separate. A GpuMemory block may be freed while kernels
// that use it are still queued: kCompute may have it again at once, since work of one queue runs in
// order; another queue only when the device has come so far (AllocateFor). Uses on other queues
// than kCompute must be over when a block is freed: copies hold what they read and write until they
// are done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/status.h"

namespace monograph {

class StreamDriver;

// Blocks of regions. Not thread-safe.
class RegionPool {
 public:
  struct Block {
    size_t bytes = 0;
    bool free = false, first = false;  // first: of its region
    uint64_t tick = 0;                 // free: when the last user was issued
    const std::string* owner = nullptr;
  };
  static constexpr size_t kAlignment = 512;

  void AddRegion(void* data, size_t bytes);
  // The smallest free block that fits; `usable_tick`: only what was free before. nullptr if none.
  void* Take(size_t bytes, uint64_t usable_tick, const std::string* owner, uint64_t* tick);
  bool HasRoom(size_t bytes) const;  // for Take of any tick
  void Give(void* data, uint64_t tick);
  // Forgets a free block that is a whole region.
  void RemoveRegion(void* data);
  const std::map<char*, Block>& blocks() const { return blocks_; }
  size_t in_use() const { return in_use_; }

 private:
  using Blocks = std::map<char*, Block>;
  void Insert(Blocks::iterator it);
  void Erase(Blocks::iterator it);
  Blocks blocks_;
  std::set<std::pair<size_t, char*>> free_;
  // Nodes of both containers that are used again, so that a steady step takes none from the heap.
  std::vector<Blocks::node_type> spare_blocks_;
  std::vector<std::set<std::pair<size_t, char*>>::node_type> spare_free_;
  size_t in_use_ = 0;
};

// The blocks that one segment takes, in order: measured in one run, planned for the next ones. A
// run that takes other blocks than the measured one, or holds them for another time, makes the
// script stale: blocks of the plan could then overlap with what a graph has fixed. From there on
// the run takes its memory from the pool.
// Belongs to the launching thread.
class MemoryScript {
 public:
  bool planned() const { return planned_; }
  bool stale() const { return stale_; }
  void SetStale() { stale_ = true; }
  size_t bytes() const { return bytes_; }  // of the plan
  int32_t next() const { return next_; }
  // Continues with block `index`: behind the blocks of a replayed graph, which are not taken in
  // this run, or back at the first block of a capture that failed.
  void SkipTo(int32_t index) { next_ = index; }
  // The blocks from `first` on, up to next(), that lie outside the arena.
  std::vector<const void*> Apart(int32_t first) const;

 private:
  friend class GpuMemory;
  struct Entry {
    size_t bytes = 0;
    int32_t birth = 0, death = -1;  // ticks; -1: it outlives the run
    bool apart = false;             // not in the arena
    bool live = false;
    size_t offset = 0;
    void* data = nullptr;
    std::vector<int32_t> earlier;  // blocks that had some of this one's addresses before
  };
  // A point between two ranges of the run: the next block, the tick, and the sum of Token over the
  // blocks of the arena that are held there.
  struct Point {
    int32_t next = 0, tick = 0;
    uint64_t held = 0;
  };
  static uint64_t Token(size_t index) { return (index + 1) * 0x9E3779B97F4A7C15; }
  std::vector<Entry> entries_;
  std::vector<int32_t> by_offset_;
  std::vector<Point> points_;
  uint64_t held_ = 0;  // in this run
  int32_t next_ = 0, tick_ = 0;
  bool planned_ = false, stale_ = false;
  size_t bytes_ = 0;
};

class GpuMemory : public Allocator {
 public:
  struct Options {
    std::string name = "GPU";
    size_t limit = 0;
    bool allow_growth = false;
    // Each block is an allocation of its own, of the size that was asked for, and is given back; no
    // script is planned. So compute-sanitizer sees what reaches beyond a tensor.
    bool separate = false;
  };
  // The owner releases it; it is deleted with its last block, which a copy to another device may
  // hold a little longer.
  struct Releaser {
    void operator()(GpuMemory* memory) const { memory->Release(); }
  };
  using Owner = std::unique_ptr<GpuMemory, Releaser>;
  // Takes all its memory here, unless it grows or its blocks are separate.
  static Result<Owner> Make(std::shared_ptr<StreamDriver> driver, Options options);

  // Allocator: for work on kCompute. While a script is open, on the launching thread, from it.
  std::string name() const override { return options_.name; }
  void* Allocate(size_t bytes) override;
  void Deallocate(void* data, size_t bytes) noexcept override;
  bool on_host() const override { return false; }
  // No script plans what is taken from it.
  Allocator* kept() override { return &kept_; }

  // For work on another queue, by any thread. `wait_tick`: the tick that the queue must wait for
  // before it uses the block; 0: none. Empty: there is no memory, or, if `busy`, none that is not
  // used by the segment that is being launched.
  Buffer AllocateFor(size_t bytes, const std::string* owner, uint64_t* wait_tick, bool* busy);
  // For somebody who knows no queue: a block of the memory that is there, and that no queue uses
  // any more. Never waits for the driver.
  Buffer AllocateIdle(size_t bytes, const std::string* owner);
  // Whether it lies in a block that is in use.
  bool Contains(const void* data) const;
  // A block that no script plans.
  Buffer AllocateApart(size_t bytes, const std::string* owner);

  // Ticks number the segments that are launched, from 1. A block that is freed may be in use until
  // the tick that was begun last is completed by the device.
  uint64_t BeginTick() { return begun_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  // begun_ is read in the default order, but any would do: only the launching thread, which calls
  // this, writes it.
  void EndTick() { ended_.store(begun_.load(), std::memory_order_release); }
  void Completed(uint64_t tick) { completed_.store(tick, std::memory_order_release); }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  // Scripts, by the launching thread. `arena`: what keeps the planned addresses valid: a graph that
  // holds them keeps it.
  struct Arena;
  // False if there is no memory for the plan, or blocks are separate: then the run goes without.
  bool Open(MemoryScript* script);
  std::shared_ptr<Arena> arena() const { return arena_; }
  // The run is between two ranges, `point` times before: notes that, or compares it.
  void AtPoint(MemoryScript* script, size_t point);
  // Ends the run. After the first one the plan is made.
  void Close(MemoryScript* script);
  // The block that is at `data` now shall not be in the arena (measured runs).
  void KeepApart(MemoryScript* script, const void* data);
  // Whether `data` lies where a script has planned blocks.
  bool InArena(const void* data) const;
  // Whether `data` is a block of the open script that lies outside the arena, or (in a measuring
  // run) can still be kept out of it.
  bool Owns(const MemoryScript& script, const void* data) const;

  // Names the owner of the memory that the launching thread (which calls this) takes from now on;
  // nullptr: none. The string is of Intern.
  void SetOwner(const std::string* owner);
  const std::string* Intern(std::string name);

  // Who holds what: a line for each of the largest holders, and the totals.
  std::string Table(size_t lines = 12) const;
  int64_t bytes_in_use() const;
  size_t limit() const { return options_.limit; }

 private:
  class Kept : public Allocator {
   public:
    explicit Kept(GpuMemory* memory) : memory_(*memory) {}
    std::string name() const override { return memory_.name(); }
    void* Allocate(size_t bytes) override { return memory_.AllocateKept(bytes); }
    void Deallocate(void* data, size_t bytes) noexcept override { memory_.Deallocate(data, bytes); }
    bool on_host() const override { return false; }

   private:
    GpuMemory& memory_;
  };

  GpuMemory(std::shared_ptr<StreamDriver> driver, Options options)
      : driver_(std::move(driver)), options_(std::move(options)) {}
  ~GpuMemory() override;
  void Release();
  void* AllocateKept(size_t bytes);
  Buffer Adopt(void* data, size_t bytes);
  void* TakeLocked(size_t bytes, uint64_t usable, const std::string* owner, uint64_t* tick)
      MG_REQUIRES(mutex_);
  void DeallocateLocked(void* data) MG_REQUIRES(mutex_);
  void* AllocateScripted(MemoryScript* script, size_t bytes) MG_REQUIRES(mutex_);
  void DropArena(Arena* arena) MG_REQUIRES(mutex_);

  const std::shared_ptr<StreamDriver> driver_;
  const Options options_;
  Kept kept_{this};
  std::atomic<uint64_t> begun_{0}, ended_{0}, completed_{0};
  mutable Mutex mutex_;
  RegionPool pool_ MG_GUARDED_BY(mutex_);
  std::vector<void*> regions_ MG_GUARDED_BY(mutex_);
  size_t taken_ MG_GUARDED_BY(mutex_) = 0;
  std::set<std::string> names_ MG_GUARDED_BY(mutex_);
  // Of the launching thread. Not thread-local: the plug-in and the program each have their own copy
  // of this code's statics.
  MemoryScript* script_ MG_GUARDED_BY(mutex_) = nullptr;  // that is open
  const std::string* owner_ MG_GUARDED_BY(mutex_) = nullptr;
  std::thread::id launching_ MG_GUARDED_BY(mutex_);
  // What the next Allocate of the thread returns.
  std::vector<std::pair<std::thread::id, void*>> adopted_ MG_GUARDED_BY(mutex_);
  // Written by the launching thread with mutex_ held, so that it may read it without, and others
  // with it.
  std::shared_ptr<Arena> arena_;
  std::vector<Arena*> arenas_ MG_GUARDED_BY(mutex_);  // all that exist
  bool released_ MG_GUARDED_BY(mutex_) = false;
};

// Host memory for copies. Lives on until its last block is given back.
class PinnedMemory : public Allocator {
 public:
  static PinnedMemory* Make(std::shared_ptr<StreamDriver> driver);
  void Release();  // by whom made it

  std::string name() const override { return "pinned"; }
  void* Allocate(size_t bytes) override;
  void Deallocate(void* data, size_t bytes) noexcept override;
  bool Contains(const void* data) const;

 private:
  explicit PinnedMemory(std::shared_ptr<StreamDriver> driver) : driver_(std::move(driver)) {}
  ~PinnedMemory() override;
  const std::shared_ptr<StreamDriver> driver_;
  mutable Mutex mutex_;
  RegionPool pool_ MG_GUARDED_BY(mutex_);
  std::vector<std::pair<char*, size_t>> regions_ MG_GUARDED_BY(mutex_);
  size_t blocks_ MG_GUARDED_BY(mutex_) = 0;
  bool released_ MG_GUARDED_BY(mutex_) = false;
};

}  // namespace monograph
