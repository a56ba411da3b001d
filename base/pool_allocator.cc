// Allocate looks in three places in turn: this thread's cache (small classes only, no lock), the
// free list of the size class (a spinlock), and memory that was mapped but not yet handed out
// (Carve). Blocks move between a cache and its class in batches. They have no header, which would
// spoil their alignment: Deallocate is told the size and computes the class from it. A large block
// is looked up by its address, so that its holder is known.
#include "base/pool_allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <unordered_map>

#include "base/byte_size.h"
#include "base/shared_arena.h"
#include "base/system_memory.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // does nothing unless this is compiled with AddressSanitizer
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#endif

namespace monograph {
namespace {

constexpr size_t kHugePage = PoolAllocator::kLarge;
constexpr size_t kSmallestBlock = 128;
// The largest block of which threads keep some for themselves.
constexpr size_t kMostCached = 1024;
// Smaller ones are the runtime's own, too: without them it could not even say what is wrong.
constexpr size_t kNeverRefused = 4096;
// From here on it is asked what the system has: some files are read, in less time than it takes to
// write a hundredth of the block.
constexpr size_t kAskSystem = size_t{64} << 20;

// So long chunks in use keep others from looking for unused ones, if little more is free.
constexpr std::chrono::milliseconds kLookAgain{100};

size_t RoundUp(size_t bytes) { return (bytes + kHugePage - 1) & ~(kHugePage - 1); }

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

// Under AddressSanitizer every byte is poisoned that is not part of a block in use: free blocks,
// through which the list of them runs, and what a block has beyond the bytes that were asked for.
template <typename Block>
[[gnu::no_sanitize_address]] inline Block* Next(const Block* block) {
  return block->next;
}
template <typename Block>
[[gnu::no_sanitize_address]] inline void SetNext(Block* block, Block* next) {
  block->next = next;
}

// Gives out so many bytes of a poisoned block; nullptr stays that.
inline void* Open(void* block, [[maybe_unused]] size_t bytes) {
  if (block != nullptr) ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  return block;
}

// Gives memory back to the system, where something else may come.
void Unmap(char* data, size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  SharedArena* const arena = SharedArena::Get();
  if (arena == nullptr || !arena->Unmap(data, bytes)) munmap(data, bytes);
}

// The block size of a class.
constexpr size_t BytesOfClass(int index) {
  const auto i = static_cast<size_t>(index);
  if (i <= 8) return i * kSmallestBlock;
  const size_t log2 = 9 + (i - 1) / 8, steps = (i - 1) % 8 + 1;
  return (size_t{1} << log2) + steps * (size_t{1} << (log2 - 3));
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
      cls.free = Next(block);
      SetNext(block, cache->free[i]);
      cache->free[i] = block;
      ++cache->count[i];
    }
  }
  if (cache->free[i] == nullptr) return Carve(bytes);
  FreeBlock* block = cache->free[i];
  cache->free[i] = Next(block);
  --cache->count[i];
  return block;
}

void PoolAllocator::Spill(ThreadCache* cache, int index, int blocks) {
  const auto i = static_cast<size_t>(index);
  if (blocks == 0) return;
  FreeBlock* first = cache->free[i];
  FreeBlock* last = first;
  for (int k = 1; k < blocks; ++k) last = Next(last);
  cache->free[i] = Next(last);
  cache->count[i] -= blocks;
  Class& cls = classes_[i];
  MutexLock lock(cls.lock);
  SetNext(last, cls.free);
  cls.free = first;
}

PoolAllocator::~PoolAllocator() {
  for (const std::vector<Chunk>& chunks : chunks_) {
    for (const Chunk& chunk : chunks) Unmap(chunk.data, kHugePage);
  }
  for (const auto& [data, mapping] : large_) Unmap(data, mapping.bytes);
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
  ASAN_POISON_MEMORY_REGION(aligned, bytes);
  bytes_mapped_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);  // a counter
  return aligned;
}

void* PoolAllocator::Carve(size_t bytes, bool always) {
  MutexLock lock(map_mutex_);
  std::vector<Chunk>& chunks = chunks_[bytes <= kMostCached ? 0 : 1];
  if (chunks.empty() || kHugePage - chunks.back().carved < bytes) {
    if (!MakeRoom(kHugePage) && bytes > kNeverRefused && !always) return nullptr;
    void* chunk = Map(kHugePage);
    if (chunk == nullptr) return nullptr;
    chunks.push_back({static_cast<char*>(chunk)});
    charged_ += kHugePage;
  }
  Chunk& chunk = chunks.back();
  return chunk.data + std::exchange(chunk.carved, chunk.carved + bytes);
}

int64_t PoolAllocator::SmallInUse() const {
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

int64_t PoolAllocator::BytesOfChunks() const {
  return static_cast<int64_t>((chunks_[0].size() + chunks_[1].size()) * kHugePage);
}

void PoolAllocator::TrimChunks(int64_t bytes) {
  const int64_t free = BytesOfChunks() - SmallInUse();
  if (free < bytes) return;
  if (free - left_free_ < static_cast<int64_t>(kHugePage) &&
      std::chrono::steady_clock::now() - looked_ < kLookAgain)
    return;
  const auto chunk_of = [](const void* block) {
    return reinterpret_cast<uintptr_t>(block) & ~uintptr_t{kHugePage - 1};
  };
  // All lists are taken away meanwhile, so that nobody waits at a spin lock: who finds a list empty
  // carves a block, and waits for map_mutex_.
  std::vector<FreeBlock*> lists(classes_.size());
  std::unordered_map<uintptr_t, size_t> free_of;
  for (size_t i = 0; i < classes_.size(); ++i) {
    {
      MutexLock lock(classes_[i].lock);
      lists[i] = std::exchange(classes_[i].free, nullptr);
    }
    const size_t block_bytes = BytesOfClass(static_cast<int>(i));
    for (const FreeBlock* block = lists[i]; block != nullptr; block = Next(block))
      free_of[chunk_of(block)] += block_bytes;
  }
  std::unordered_map<uintptr_t, bool> goes;
  for (const std::vector<Chunk>& chunks : chunks_) {
    for (const Chunk& chunk : chunks) {
      const auto found = free_of.find(chunk_of(chunk.data));
      goes[chunk_of(chunk.data)] = found != free_of.end() && found->second == chunk.carved;
    }
    if (!chunks.empty()) goes[chunk_of(chunks.back().data)] = false;
  }
  for (size_t i = 0; i < classes_.size(); ++i) {
    FreeBlock *kept = nullptr, *last = nullptr;
    for (FreeBlock* block = lists[i]; block != nullptr;) {
      FreeBlock* const next = Next(block);
      if (!goes[chunk_of(block)]) {
        SetNext(block, kept);
        if (kept == nullptr) last = block;
        kept = block;
      }
      block = next;
    }
    if (kept == nullptr) continue;
    MutexLock lock(classes_[i].lock);
    SetNext(last, classes_[i].free);
    classes_[i].free = kept;
  }
  int64_t gone = 0;
  for (std::vector<Chunk>& chunks : chunks_) {
    gone += static_cast<int64_t>(kHugePage * std::erase_if(chunks, [&](const Chunk& chunk) {
                                   if (!goes[chunk_of(chunk.data)]) return false;
                                   Unmap(chunk.data, kHugePage);
                                   return true;
                                 }));
  }
  charged_ -= gone;
  bytes_mapped_.fetch_sub(gone, std::memory_order_relaxed);  // a counter
  left_free_ = free - gone;
  looked_ = std::chrono::steady_clock::now();
}

// ---- large blocks

void PoolAllocator::Trim(int64_t bytes) {
  for (auto it = free_large_.rbegin(); it != free_large_.rend() && bytes > 0; ++it) {
    while (!it->second.empty() && bytes > 0) {
      const auto block = large_.find(it->second.back());
      it->second.pop_back();
      Unmap(block->first, block->second.bytes);
      // Relaxed: a counter.
      bytes_mapped_.fetch_sub(static_cast<int64_t>(block->second.bytes), std::memory_order_relaxed);
      charged_ -= static_cast<int64_t>(block->second.charged);
      bytes -= static_cast<int64_t>(block->second.charged);
      large_.erase(block);
    }
  }
}

// Gives memory back to the system: free large blocks (Trim), then chunks of which all blocks are
// free (TrimChunks). Without the latter, what one session has used for small tensors would never
// serve tensors of another size.
bool PoolAllocator::MakeRoom(size_t bytes) {
  const auto wanted = static_cast<int64_t>(bytes);
  if (wanted > limit()) return false;
  const int64_t most = limit() - wanted;
  if (charged_ > most) Trim(charged_ - most);
  if (charged_ > most) TrimChunks(charged_ - most);
  if (charged_ > most) return false;
  if (bytes < kAskSystem || ReadSystemMemory().available >= wanted) return true;
  Trim(wanted);
  TrimChunks(kHugePage);
  return ReadSystemMemory().available >= wanted;
}

bool PoolAllocator::PassesShare(const MemoryHolder* holder, size_t bytes) const {
  return holder != nullptr && holder->bounded() && MemoryHolder::sharing() > 1 &&
         static_cast<double>(holder->bytes()) + static_cast<double>(bytes) >
             kShare * static_cast<double>(limit());
}

void* PoolAllocator::AllocateLarge(int index, size_t bytes, size_t wanted, bool always) {
  const size_t charge = RoundUp(wanted);
  MemoryHolder* const holder = MemoryHolder::Current();
  if (!always && PassesShare(holder, charge)) return nullptr;
  // Of the process's own pool, once others of this host read its tensors where they lie.
  SharedArena* const arena = thread_caches_ ? SharedArena::Get() : nullptr;
  char* data;
  size_t filled;  // of the block, before
  {
    MutexLock lock(map_mutex_);
    if (arena != nullptr && arena->IsNew()) Trim(std::numeric_limits<int64_t>::max());
    std::vector<char*>& free = free_large_[index];
    if (!free.empty()) {
      data = free.back();
      free.pop_back();
    } else {
      if (!MakeRoom(charge) && !always) return nullptr;
      data = arena != nullptr ? arena->Map(RoundUp(bytes)) : nullptr;
      if (data != nullptr) {
        ASAN_POISON_MEMORY_REGION(data, RoundUp(bytes));
        bytes_mapped_.fetch_add(static_cast<int64_t>(RoundUp(bytes)),
                                std::memory_order_relaxed);  // a counter
      } else {
        data = static_cast<char*>(Map(RoundUp(bytes)));
      }
      if (data == nullptr) return nullptr;
      large_[data].bytes = RoundUp(bytes);
    }
    Mapping& mapping = large_.at(data);
    filled = mapping.charged;
    if (charge > mapping.charged)
      charged_ += static_cast<int64_t>(charge - std::exchange(mapping.charged, charge));
    mapping.given_out = true;
    ChangeHolder(&mapping, holder == nullptr ? nullptr : holder->shared_from_this());
    large_in_use_ += static_cast<int64_t>(bytes);
  }
  void* const block = Open(data, wanted);
  if (arena != nullptr && charge > filled && arena->OffsetOf(data, charge))
    arena->Fill(data + filled, charge - filled);
  return block;
}

void PoolAllocator::DeallocateLarge(int index, size_t bytes, void* data) noexcept {
  std::shared_ptr<MemoryHolder> holder;  // may end with this block: not under the lock
  MutexLock lock(map_mutex_);
  Mapping& mapping = large_.at(static_cast<char*>(data));
  holder = mapping.holder;
  ChangeHolder(&mapping, nullptr);
  mapping.given_out = false;
  free_large_[index].push_back(static_cast<char*>(data));
  large_in_use_ -= static_cast<int64_t>(bytes);
}

void PoolAllocator::ChangeHolder(Mapping* mapping, std::shared_ptr<MemoryHolder> holder) {
  const auto bytes = static_cast<int64_t>(mapping->charged);
  // Relaxed: counters.
  if (mapping->holder != nullptr)
    mapping->holder->bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  mapping->holder = std::move(holder);
  if (mapping->holder != nullptr)
    mapping->holder->bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

PoolAllocator::Mapping* PoolAllocator::Find(const void* data) {
  const auto* address = static_cast<const char*>(data);
  auto after = large_.upper_bound(const_cast<char*>(address));
  if (after == large_.begin()) return nullptr;
  const auto block = std::prev(after);
  const bool within = address < block->first + block->second.bytes && block->second.given_out;
  return within ? &block->second : nullptr;
}

void PoolAllocator::SetHolder(const void* data, std::shared_ptr<MemoryHolder> holder) {
  std::shared_ptr<MemoryHolder> before;
  MutexLock lock(map_mutex_);
  Mapping* const mapping = Find(data);
  if (mapping == nullptr) return;
  before = mapping->holder;
  ChangeHolder(mapping, std::move(holder));
}

void PoolAllocator::SetHolderLike(const void* data, const void* like) {
  std::shared_ptr<MemoryHolder> holder;
  {
    MutexLock lock(map_mutex_);
    if (const Mapping* const mapping = Find(like)) holder = mapping->holder;
  }
  SetHolder(data, std::move(holder));
}

struct PoolAllocator::Reservation {
  PoolAllocator* const pool;
  const int64_t bytes;
  const std::shared_ptr<MemoryHolder> holder;

  Reservation(PoolAllocator* of, int64_t size, std::shared_ptr<MemoryHolder> by)
      : pool(of), bytes(size), holder(std::move(by)) {
    // Relaxed, also below: a counter.
    if (holder != nullptr) holder->bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  ~Reservation() {
    if (holder != nullptr) holder->bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    MutexLock lock(pool->map_mutex_);
    pool->charged_ -= bytes;
    const auto reserved = pool->reserved_.find(holder == nullptr ? "" : holder->name());
    if ((reserved->second -= bytes) == 0) pool->reserved_.erase(reserved);
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
};

std::shared_ptr<void> PoolAllocator::Reserve(size_t bytes, bool always) {
  MemoryHolder* const holder = MemoryHolder::Current();
  if (bytes > (size_t{1} << 46) || (!always && PassesShare(holder, bytes))) return nullptr;
  const auto charge = static_cast<int64_t>(bytes);
  {
    MutexLock lock(map_mutex_);
    if (!MakeRoom(bytes) && !always) return nullptr;
    charged_ += charge;
    reserved_[holder == nullptr ? "" : holder->name()] += charge;
  }
  return std::make_shared<Reservation>(this, charge,
                                       holder == nullptr ? nullptr : holder->shared_from_this());
}

int64_t PoolAllocator::bytes_reserved() const {
  MutexLock lock(map_mutex_);
  int64_t bytes = 0;
  for (const auto& [name, size] : reserved_) bytes += size;
  return bytes;
}

std::string PoolAllocator::Explain(size_t bytes) const {
  constexpr size_t kMostNamed = 4;
  const MemoryHolder* const asker = MemoryHolder::Current();
  std::map<std::string, int64_t> held;
  int64_t free = limit(), others = 0;
  {
    MutexLock lock(map_mutex_);
    free -= charged_;
    for (const auto& [data, mapping] : large_) {
      const auto charged = static_cast<int64_t>(mapping.charged);
      if (!mapping.given_out) {
        free += charged;
      } else if (mapping.holder != nullptr) {
        held[mapping.holder->name()] += charged;
      } else {
        others += charged;
      }
    }
    for (const auto& [name, size] : reserved_) (name.empty() ? others : held[name]) += size;
    others += BytesOfChunks();
  }
  if (others > 0) held["other tensors"] = others;
  const std::string asked = BytesText(static_cast<int64_t>(std::min(bytes, size_t{1} << 62)));
  std::string text;
  if (PassesShare(asker, bytes)) {
    text = asked + " more are too much: while other sessions are open " + asker->name() +
           " may hold three quarters of " + BytesText(limit()) + " (--memory_limit)";
  } else if (bytes <= static_cast<size_t>(std::max<int64_t>(free, 0))) {
    text = asked + " are within the limit of " + BytesText(limit()) +
           " (--memory_limit), but the system has only " + BytesText(ReadSystemMemory().available) +
           " left";
  } else {
    text = asked + " are more than the " + BytesText(std::max<int64_t>(free, 0)) +
           " that are free of " + BytesText(limit()) + " (--memory_limit)";
  }
  std::vector<std::pair<int64_t, std::string>> largest;
  for (auto& [name, size] : held) largest.emplace_back(size, name);
  std::sort(largest.rbegin(), largest.rend());
  for (size_t i = 0; i < largest.size() && i < kMostNamed; ++i) {
    text += (i == 0 ? "; held by: " : ", ") + largest[i].second + " (" +
            BytesText(largest[i].first) + ")";
  }
  if (largest.size() > kMostNamed)
    text += " and " + std::to_string(largest.size() - kMostNamed) + " more";
  return text;
}

// ---- any block

void* PoolAllocator::Allocate(size_t bytes) {
  if (bytes > (size_t{1} << 46)) return nullptr;
  const SizeClass size = ClassOf(bytes);
  if (thread_caches_ && size.index < kCachedClasses) {
    if (ThreadCache* cache = Cache()) {
      const auto i = static_cast<size_t>(size.index);
      void* data = cache->free[i];
      if (data != nullptr) [[likely]] {
        cache->free[i] = Next(cache->free[i]);
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
      return Open(data, bytes);
    }
  }
  if (size.bytes > kHugePage) return AllocateLarge(size.index, size.bytes, bytes);
  Class& cls = classes_[static_cast<size_t>(size.index)];
  {
    MutexLock lock(cls.lock);
    cls.in_use += static_cast<int64_t>(size.bytes);
    if (cls.free != nullptr) {
      FreeBlock* block = cls.free;
      cls.free = Next(block);
      return Open(block, bytes);
    }
  }
  void* block = Carve(size.bytes);
  if (block == nullptr) {
    MutexLock lock(cls.lock);
    cls.in_use -= static_cast<int64_t>(size.bytes);
  }
  return Open(block, bytes);
}

void* PoolAllocator::AllocateAlways(size_t bytes) {
  if (void* const data = Allocate(bytes)) return data;
  if (bytes > (size_t{1} << 46)) return nullptr;
  const SizeClass size = ClassOf(bytes);
  if (size.bytes > kHugePage) return AllocateLarge(size.index, size.bytes, bytes, true);
  void* const block = Carve(size.bytes, true);
  if (block == nullptr) return nullptr;
  Class& cls = classes_[static_cast<size_t>(size.index)];
  MutexLock lock(cls.lock);
  cls.in_use += static_cast<int64_t>(size.bytes);
  return Open(block, bytes);
}

void PoolAllocator::Deallocate(void* data, size_t bytes) noexcept {
  if (data == nullptr) return;
  const SizeClass size = ClassOf(bytes);
  ASAN_POISON_MEMORY_REGION(data, size.bytes);
  auto* block = static_cast<FreeBlock*>(data);
  if (thread_caches_ && size.index < kCachedClasses) {
    if (ThreadCache* cache = Cache()) {
      const auto i = static_cast<size_t>(size.index);
      SetNext(block, cache->free[i]);
      cache->free[i] = block;
      // As in Allocate: only this thread writes it. Negative if other threads took what it frees.
      const int64_t in_use = cache->in_use.load(std::memory_order_relaxed);
      cache->in_use.store(in_use - static_cast<int64_t>(size.bytes), std::memory_order_relaxed);
      if (++cache->count[i] >= 4 * kCacheBatch) Spill(cache, size.index, 2 * kCacheBatch);
      return;
    }
  }
  if (size.bytes > kHugePage) return DeallocateLarge(size.index, size.bytes, data);
  Class& cls = classes_[static_cast<size_t>(size.index)];
  MutexLock lock(cls.lock);
  SetNext(block, cls.free);
  cls.free = block;
  cls.in_use -= static_cast<int64_t>(size.bytes);
}

int64_t PoolAllocator::bytes_in_use() const {
  const int64_t small = SmallInUse();
  MutexLock lock(map_mutex_);
  return small + large_in_use_;
}

PoolAllocator& HostPool() {
  static auto* pool = [] {
    auto* made = new PoolAllocator("host", /*thread_caches=*/true);
    made->SetLimit(DefaultMemoryLimit());
    return made;  // outlives every static tensor
  }();
  return *pool;
}

Allocator* HostAllocator() { return &HostPool(); }

int64_t DefaultMemoryLimit() {
  const int64_t total = ReadSystemMemory().total;
  return total - std::clamp<int64_t>(total / 8, int64_t{64} << 20, int64_t{2} << 30);
}

}  // namespace monograph
