// RegionPool takes the smallest free block that fits, and joins neighbours when a block is freed.
// GpuMemory adds ticks, which say what segment may still use a freed block, and scripts: the first
// run of a segment records its blocks (AllocateScripted), Close plans offsets in the arena from
// their lifetimes (PlanMemory), and later runs get these addresses if they ask for the same sizes
// in the same order and hold the same blocks between ranges (AtPoint); else the script is stale,
// and the pool serves them. Fixed addresses are what keeps a captured graph valid from step to
// step.
#include "executor/gpu/memory.h"

#include <algorithm>
#include <thread>
#include <unordered_map>
#include <utility>

#include "executor/gpu/driver.h"
#include "executor/gpu/lifetimes.h"

namespace monograph {
namespace {

constexpr size_t kFirstRegion = size_t{64} << 20;
constexpr size_t kPinnedRegion = size_t{16} << 20;
constexpr uint64_t kAnyTick = UINT64_MAX;

size_t Rounded(size_t bytes) {
  return std::max<size_t>(1, (bytes + RegionPool::kAlignment - 1) / RegionPool::kAlignment) *
         RegionPool::kAlignment;
}

}  // namespace

// ---- RegionPool

void RegionPool::Insert(Blocks::iterator it) {
  const std::pair<size_t, char*> key(it->second.bytes, it->first);
  if (spare_free_.empty()) {
    free_.insert(key);
  } else {
    auto node = std::move(spare_free_.back());
    spare_free_.pop_back();
    node.value() = key;
    free_.insert(std::move(node));
  }
}

void RegionPool::Erase(Blocks::iterator it) {
  spare_free_.push_back(free_.extract({it->second.bytes, it->first}));
}

void RegionPool::AddRegion(void* data, size_t bytes) {
  Insert(
      blocks_.emplace(static_cast<char*>(data), Block{.bytes = bytes, .free = true, .first = true})
          .first);
}

void* RegionPool::Take(size_t bytes, uint64_t usable_tick, const std::string* owner,
                       uint64_t* tick) {
  bytes = Rounded(bytes);
  auto found = free_.lower_bound({bytes, nullptr});
  while (found != free_.end() && blocks_.find(found->second)->second.tick > usable_tick) ++found;
  if (found == free_.end()) return nullptr;
  const auto it = blocks_.find(found->second);
  Erase(it);
  if (it->second.bytes > bytes) {
    const Block rest{.bytes = it->second.bytes - bytes, .free = true, .tick = it->second.tick};
    Blocks::iterator second;
    if (spare_blocks_.empty()) {
      second = blocks_.emplace(it->first + bytes, rest).first;
    } else {
      auto node = std::move(spare_blocks_.back());
      spare_blocks_.pop_back();
      node.key() = it->first + bytes;
      node.mapped() = rest;
      second = blocks_.insert(std::move(node)).position;
    }
    it->second.bytes = bytes;
    Insert(second);
  }
  it->second.free = false;
  it->second.owner = owner;
  *tick = it->second.tick;
  in_use_ += bytes;
  return it->first;
}

bool RegionPool::HasRoom(size_t bytes) const {
  return free_.lower_bound({Rounded(bytes), nullptr}) != free_.end();
}

void RegionPool::Give(void* data, uint64_t tick) {
  auto it = blocks_.find(static_cast<char*>(data));
  MG_CHECK(it != blocks_.end() && !it->second.free);
  in_use_ -= it->second.bytes;
  it->second.free = true;
  it->second.owner = nullptr;
  it->second.tick = tick;
  const auto join = [this](Blocks::iterator left, Blocks::iterator right) {
    left->second.bytes += right->second.bytes;
    left->second.tick = std::max(left->second.tick, right->second.tick);
    spare_blocks_.push_back(blocks_.extract(right));
  };
  if (auto next = std::next(it);
      next != blocks_.end() && next->second.free && !next->second.first) {
    Erase(next);
    join(it, next);
  }
  if (it != blocks_.begin() && !it->second.first) {
    if (auto before = std::prev(it); before->second.free) {
      Erase(before);
      join(before, it);
      it = before;
    }
  }
  Insert(it);
}

void RegionPool::RemoveRegion(void* data) {
  const auto it = blocks_.find(static_cast<char*>(data));
  MG_CHECK(it != blocks_.end() && it->second.free && it->second.first);
  Erase(it);
  blocks_.erase(it);
}

// ---- GpuMemory

std::vector<const void*> MemoryScript::Apart(int32_t first) const {
  std::vector<const void*> blocks;
  for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(next_); ++i) {
    if (entries_[i].apart) blocks.push_back(entries_[i].data);
  }
  return blocks;
}

// A block of the pool in which the planned blocks lie.
struct GpuMemory::Arena {
  GpuMemory* memory = nullptr;
  char* data = nullptr;
  size_t bytes = 0;
  int64_t live MG_GUARDED_BY(memory->mutex_) = 0;
  bool dropped MG_GUARDED_BY(memory->mutex_) = false;
};

Result<GpuMemory::Owner> GpuMemory::Make(std::shared_ptr<StreamDriver> driver, Options options) {
  Owner memory(new GpuMemory(std::move(driver), std::move(options)));
  if (!memory->options_.allow_growth && !memory->options_.separate) {
    const size_t bytes = memory->options_.limit / RegionPool::kAlignment * RegionPool::kAlignment;
    MG_ASSIGN_OR_RETURN(void* region, memory->driver_->AllocateDevice(bytes));
    MutexLock lock(memory->mutex_);
    memory->regions_.push_back(region);
    memory->pool_.AddRegion(region, bytes);
    memory->taken_ = bytes;
  }
  return memory;
}

GpuMemory::~GpuMemory() {
  for (void* region : regions_) driver_->FreeDevice(region);
}

void GpuMemory::Release() {
  arena_ = nullptr;  // not under the lock: its deleter takes it
  {
    MutexLock lock(mutex_);
    released_ = true;
    if (pool_.in_use() > 0) return;
  }
  delete this;
}

void* GpuMemory::TakeLocked(size_t bytes, uint64_t usable, const std::string* owner,
                            uint64_t* tick) {
  if (void* data = pool_.Take(bytes, usable, owner, tick)) return data;
  const size_t need = Rounded(bytes);
  if (options_.separate) {
    if (need > options_.limit - taken_) return nullptr;
    Result<void*> data = driver_->AllocateDevice(std::max<size_t>(bytes, 1));
    if (!data.ok()) return nullptr;
    regions_.push_back(*data);
    pool_.AddRegion(*data, need);
    taken_ += need;
    return pool_.Take(bytes, usable, owner, tick);
  }
  if (!options_.allow_growth || need > options_.limit - taken_) return nullptr;
  // Regions double, so that there are few.
  const size_t region = std::min(options_.limit - taken_, std::max({need, kFirstRegion, taken_})) /
                        RegionPool::kAlignment * RegionPool::kAlignment;
  for (const size_t size : {region, need}) {
    Result<void*> data = driver_->AllocateDevice(size);
    if (!data.ok()) continue;
    regions_.push_back(*data);
    pool_.AddRegion(*data, size);
    taken_ += size;
    return pool_.Take(bytes, usable, owner, tick);
  }
  return nullptr;
}

void* GpuMemory::Allocate(size_t bytes) {
  const std::thread::id self = std::this_thread::get_id();
  MutexLock lock(mutex_);
  for (auto& [thread, data] : adopted_) {
    if (thread != self) continue;
    void* const mine = data;
    std::swap(data, adopted_.back().second);
    std::swap(thread, adopted_.back().first);
    adopted_.pop_back();
    return mine;
  }
  const bool launching = self == launching_;
  if (launching && script_ != nullptr) return AllocateScripted(script_, bytes);
  uint64_t tick;
  return TakeLocked(bytes, kAnyTick, launching ? owner_ : nullptr, &tick);
}

void* GpuMemory::AllocateKept(size_t bytes) {
  MutexLock lock(mutex_);
  uint64_t tick;
  return TakeLocked(bytes, kAnyTick, std::this_thread::get_id() == launching_ ? owner_ : nullptr,
                    &tick);
}

void* GpuMemory::AllocateScripted(MemoryScript* script, size_t bytes) {
  uint64_t tick;
  const auto index = static_cast<size_t>(script->next_++);
  if (!script->planned_) {
    script->entries_.push_back({.bytes = bytes, .birth = script->tick_++});
    auto& entry = script->entries_.back();
    entry.data = TakeLocked(bytes, kAnyTick, owner_, &tick);
    entry.live = entry.data != nullptr;
    return entry.data;
  }
  if (!script->stale_ && index < script->entries_.size() &&
      script->entries_[index].bytes == bytes) {
    auto& entry = script->entries_[index];
    const bool vacant = std::none_of(
        entry.earlier.begin(), entry.earlier.end(),
        [&](int32_t other) { return script->entries_[static_cast<size_t>(other)].live; });
    if (!entry.apart && !entry.live && vacant) {
      entry.live = true;
      script->held_ += MemoryScript::Token(index);
      arena_->memory->mutex_.AssertHeld();  // this memory's
      ++arena_->live;
      return arena_->data + entry.offset;
    }
    if (entry.apart) return entry.data = TakeLocked(bytes, kAnyTick, owner_, &tick);
  }
  script->stale_ = true;
  return TakeLocked(bytes, kAnyTick, owner_, &tick);
}

void GpuMemory::Deallocate(void* data, size_t) noexcept {
  {
    MutexLock lock(mutex_);
    DeallocateLocked(data);
    if (!released_ || pool_.in_use() > 0) return;
  }
  delete this;
}

void GpuMemory::DeallocateLocked(void* data) {
  for (Arena* arena : arenas_) {
    auto* at = static_cast<char*>(data);
    if (at < arena->data || at >= arena->data + arena->bytes) continue;
    arena->memory->mutex_.AssertHeld();  // this memory's
    --arena->live;
    if (script_ != nullptr && arena == arena_.get()) {
      const auto offset = static_cast<size_t>(at - arena->data);
      auto it =
          std::lower_bound(script_->by_offset_.begin(), script_->by_offset_.end(), offset,
                           [&](int32_t entry, size_t value) MG_REQUIRES(mutex_) {
                             return script_->entries_[static_cast<size_t>(entry)].offset < value;
                           });
      for (; it != script_->by_offset_.end(); ++it) {
        auto& entry = script_->entries_[static_cast<size_t>(*it)];
        if (entry.offset != offset) break;
        if (entry.live) {
          entry.live = false;
          script_->held_ -= MemoryScript::Token(static_cast<size_t>(*it));
          break;
        }
      }
    }
    if (arena->dropped && arena->live == 0) DropArena(arena);
    return;
  }
  if (script_ != nullptr && !script_->planned_) {
    // The latest entry with this address.
    for (size_t i = script_->entries_.size(); i-- > 0;) {
      auto& entry = script_->entries_[i];
      if (entry.data != data || !entry.live) continue;
      entry.live = false;
      entry.death = script_->tick_++;
      break;
    }
  }
  const size_t before = pool_.in_use();
  pool_.Give(data, begun_.load(std::memory_order_acquire));
  if (!options_.separate) return;
  taken_ -= before - pool_.in_use();
  pool_.RemoveRegion(data);
  std::erase(regions_, data);
  driver_->FreeDevice(data);  // waits for all that may use it
}

Buffer GpuMemory::Adopt(void* data, size_t bytes) {
  if (data == nullptr) return Buffer();
  {
    MutexLock lock(mutex_);
    adopted_.emplace_back(std::this_thread::get_id(), data);
  }
  return Buffer::Allocate(this, bytes);
}

Buffer GpuMemory::AllocateApart(size_t bytes, const std::string* owner) {
  void* data = nullptr;
  {
    MutexLock lock(mutex_);
    uint64_t tick;
    data = TakeLocked(bytes, kAnyTick, owner, &tick);
  }
  return Adopt(data, bytes);
}

Buffer GpuMemory::AllocateFor(size_t bytes, const std::string* owner, uint64_t* wait_tick,
                              bool* busy) {
  *busy = false;
  *wait_tick = 0;
  void* data = nullptr;
  {
    MutexLock lock(mutex_);
    uint64_t tick;
    data = TakeLocked(bytes, completed(), owner, &tick);
    if (data == nullptr) {
      data = pool_.Take(bytes, ended_.load(std::memory_order_acquire), owner, &tick);
      if (data != nullptr) *wait_tick = tick;
    }
    if (data == nullptr) *busy = pool_.HasRoom(bytes);
  }
  return Adopt(data, bytes);
}

bool GpuMemory::Contains(const void* data) const {
  MutexLock lock(mutex_);
  const auto* const at = static_cast<const char*>(data);
  auto block = pool_.blocks().upper_bound(const_cast<char*>(at));
  if (block == pool_.blocks().begin()) return false;
  --block;
  return !block->second.free && at < block->first + block->second.bytes;
}

Buffer GpuMemory::AllocateIdle(size_t bytes, const std::string* owner) {
  void* data = nullptr;
  if (!options_.separate) {
    MutexLock lock(mutex_);
    uint64_t tick;
    data = pool_.Take(bytes, completed(), owner, &tick);
  }
  return Adopt(data, bytes);
}

bool GpuMemory::Open(MemoryScript* script) {
  if (options_.separate) return false;
  std::shared_ptr<Arena> old;  // released after the lock: its deleter takes it
  MutexLock lock(mutex_);
  script->next_ = 0;
  script->tick_ = 0;
  script->held_ = 0;
  script->stale_ = false;
  for (auto& entry : script->entries_) {
    entry.live = false;
    entry.data = nullptr;
  }
  if (script->planned_ && script->bytes_ > 0 &&
      (arena_ == nullptr || arena_->bytes < script->bytes_)) {
    uint64_t tick;
    static const std::string kOwner = "(memory plans)";
    void* data = TakeLocked(script->bytes_, kAnyTick, &kOwner, &tick);
    if (data == nullptr) return false;
    auto* arena = new Arena{this, static_cast<char*>(data), Rounded(script->bytes_)};
    arenas_.push_back(arena);
    old = std::exchange(arena_, std::shared_ptr<Arena>(arena, [this](Arena* gone) {
                          {
                            MutexLock inner(mutex_);
                            gone->memory->mutex_.AssertHeld();  // this memory's
                            gone->dropped = true;
                            if (gone->live == 0) DropArena(gone);
                            if (!released_ || pool_.in_use() > 0) return;
                          }
                          delete this;
                        }));
  }
  script_ = script;
  launching_ = std::this_thread::get_id();
  return true;
}

void GpuMemory::AtPoint(MemoryScript* script, size_t point) {
  MutexLock lock(mutex_);
  if (!script->planned_) {
    script->points_.push_back({.next = script->next_, .tick = script->tick_});
    return;
  }
  const MemoryScript::Point& measured = script->points_[point];
  if (script->next_ != measured.next || script->held_ != measured.held) script->stale_ = true;
}

void GpuMemory::DropArena(Arena* arena) {
  pool_.Give(arena->data, begun_.load(std::memory_order_acquire));
  std::erase(arenas_, arena);
  delete arena;
}

void GpuMemory::Close(MemoryScript* script) {
  std::shared_ptr<Arena> leaked;  // released after the lock: its deleter takes it
  {
    MutexLock lock(mutex_);
    script_ = nullptr;
    if (arena_ != nullptr) {
      arena_->memory->mutex_.AssertHeld();  // this memory's
      // A block of the plan is still held: the next run needs another arena, and that block is
      // taken apart from it.
      if (arena_->live > 0) {
        leaked = std::move(arena_);
        for (auto& entry : script->entries_) entry.apart = entry.apart || entry.live;
      }
    }
    if (!script->planned_) {
      std::vector<Lifetime> blocks;
      std::vector<int32_t> of;
      for (size_t i = 0; i < script->entries_.size(); ++i) {
        auto& entry = script->entries_[i];
        entry.apart = entry.apart || entry.live || entry.death < 0;
        entry.live = false;
        if (entry.apart) continue;
        blocks.push_back({entry.bytes, entry.birth, entry.death});
        of.push_back(static_cast<int32_t>(i));
      }
      const MemoryPlan plan = PlanMemory(blocks, RegionPool::kAlignment);
      script->bytes_ = plan.bytes;
      for (size_t i = 0; i < of.size(); ++i) {
        auto& entry = script->entries_[static_cast<size_t>(of[i])];
        entry.offset = plan.offsets[i];
        for (MemoryScript::Point& point : script->points_) {
          if (entry.birth < point.tick && point.tick <= entry.death)
            point.held += MemoryScript::Token(static_cast<size_t>(of[i]));
        }
        for (size_t j = 0; j < i; ++j) {
          if (plan.offsets[j] < plan.offsets[i] + blocks[i].bytes &&
              plan.offsets[i] < plan.offsets[j] + blocks[j].bytes)
            entry.earlier.push_back(of[j]);
        }
      }
      script->by_offset_ = of;
      std::stable_sort(script->by_offset_.begin(), script->by_offset_.end(),
                       [&](int32_t a, int32_t b) {
                         return script->entries_[static_cast<size_t>(a)].offset <
                                script->entries_[static_cast<size_t>(b)].offset;
                       });
      script->planned_ = true;
    }
  }
}

void GpuMemory::KeepApart(MemoryScript* script, const void* data) {
  MutexLock lock(mutex_);
  for (auto& entry : script->entries_) {
    if (entry.live && data >= entry.data && data < static_cast<char*>(entry.data) + entry.bytes)
      entry.apart = true;
  }
}

bool GpuMemory::InArena(const void* data) const {
  return arena_ != nullptr && data >= arena_->data && data < arena_->data + arena_->bytes;
}

bool GpuMemory::Owns(const MemoryScript& script, const void* data) const {
  return std::any_of(script.entries_.begin(), script.entries_.end(), [&](const auto& entry) {
    return (script.planned_ ? entry.apart : entry.live) && entry.data == data;
  });
}

void GpuMemory::SetOwner(const std::string* owner) {
  MutexLock lock(mutex_);
  owner_ = owner;
  launching_ = std::this_thread::get_id();
}

const std::string* GpuMemory::Intern(std::string name) {
  MutexLock lock(mutex_);
  return &*names_.insert(std::move(name)).first;
}

std::string GpuMemory::Table(size_t lines) const {
  MutexLock lock(mutex_);
  struct Holder {
    int64_t bytes = 0, blocks = 0;
  };
  std::map<std::string_view, Holder> holders;
  size_t largest = 0;
  for (const auto& [data, block] : pool_.blocks()) {
    if (block.free) {
      largest = std::max(largest, block.bytes);
      continue;
    }
    Holder& holder = holders[block.owner == nullptr ? std::string_view("(others)") : *block.owner];
    holder.bytes += static_cast<int64_t>(block.bytes);
    ++holder.blocks;
  }
  std::vector<std::pair<std::string_view, Holder>> sorted(holders.begin(), holders.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text = options_.name + ": limit " + std::to_string(options_.limit) +
                     " bytes, taken " + std::to_string(taken_) + ", in use " +
                     std::to_string(pool_.in_use()) + ", largest free block " +
                     std::to_string(largest) + ". Held by:";
  Holder rest;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const auto& [name, holder] = sorted[i];
    if (i < lines) {
      text += "\n  " + std::to_string(holder.bytes) + " bytes in " + std::to_string(holder.blocks) +
              " blocks: " + std::string(name);
    } else {
      rest.bytes += holder.bytes;
      rest.blocks += holder.blocks;
    }
  }
  if (rest.blocks > 0) {
    text += "\n  " + std::to_string(rest.bytes) + " bytes in " + std::to_string(rest.blocks) +
            " blocks: " + std::to_string(sorted.size() - lines) + " others";
  }
  return text;
}

int64_t GpuMemory::bytes_in_use() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(pool_.in_use());
}

// ---- PinnedMemory

PinnedMemory* PinnedMemory::Make(std::shared_ptr<StreamDriver> driver) {
  return new PinnedMemory(std::move(driver));
}

PinnedMemory::~PinnedMemory() {
  for (const auto& [data, bytes] : regions_) driver_->FreePinned(data);
}

void PinnedMemory::Release() {
  {
    MutexLock lock(mutex_);
    released_ = true;
    if (blocks_ > 0) return;
  }
  delete this;
}

void* PinnedMemory::Allocate(size_t bytes) {
  MutexLock lock(mutex_);
  uint64_t tick;
  void* data = pool_.Take(bytes, kAnyTick, nullptr, &tick);
  if (data == nullptr) {
    const size_t region = std::max(Rounded(bytes), kPinnedRegion);
    Result<void*> made = driver_->AllocatePinned(region);
    if (!made.ok()) return nullptr;
    pool_.AddRegion(*made, region);
    regions_.emplace_back(static_cast<char*>(*made), region);
    data = pool_.Take(bytes, kAnyTick, nullptr, &tick);
  }
  ++blocks_;
  return data;
}

void PinnedMemory::Deallocate(void* data, size_t) noexcept {
  {
    MutexLock lock(mutex_);
    pool_.Give(data, 0);
    if (--blocks_ > 0 || !released_) return;
  }
  delete this;
}

bool PinnedMemory::Contains(const void* data) const {
  MutexLock lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& region) {
    return data >= region.first && data < region.first + region.second;
  });
}

}  // namespace monograph
