// One sparse file, twice as large as the machine's memory, so that there is a free range for
// whatever the pool's limit allows. Ranges are taken from the lowest place that fits. A range that
// is given back becomes a hole: its pages are gone for every process that has the file mapped, so
// its place can be used again.
#include "base/shared_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <utility>

#include "base/system_memory.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace monograph {
namespace {

std::atomic<SharedArena*> the_arena{nullptr};

}  // namespace

char* MapArena(int descriptor, size_t bytes, bool to_write) {
  constexpr size_t kPage = SharedArena::kPage;
  // Address space first, so that the mapping can begin on a huge page.
  void* const raw =
      mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(raw);
  const size_t before = (kPage - reinterpret_cast<uintptr_t>(begin) % kPage) % kPage;
  void* const mapped = mmap(begin + before, bytes, PROT_READ | (to_write ? PROT_WRITE : 0),
                            MAP_SHARED | MAP_FIXED | MAP_NORESERVE, descriptor, 0);
  if (mapped == MAP_FAILED) {
    munmap(raw, bytes + kPage);
    return nullptr;
  }
  if (before > 0) munmap(begin, before);
  if (before < kPage) munmap(begin + before + bytes, kPage - before);
  madvise(mapped, bytes, MADV_HUGEPAGE);
  madvise(mapped, bytes, MADV_DONTDUMP);
  return static_cast<char*>(mapped);
}

SharedArena* SharedArena::Get() { return the_arena.load(std::memory_order_acquire); }

SharedArena* SharedArena::Start() {
  // Made once, or found to be impossible once.
  static SharedArena* const made = [] {
    auto* arena = new SharedArena;
    if (!arena->Open() || !arena->HasHugePages()) {
      delete arena;
      return static_cast<SharedArena*>(nullptr);
    }
    the_arena.store(arena, std::memory_order_release);
    return arena;
  }();
  return made;
}

bool SharedArena::Open() {
  const auto memory = static_cast<size_t>(std::max<int64_t>(ReadSystemMemory().total, kPage));
  bytes_ = 2 * ((memory + kPage - 1) / kPage * kPage);
  file_ = Descriptor(memfd_create("monograph", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file_.get() < 0 || fchmod(file_.get(), 0600) != 0 ||
      ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0 ||
      fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return false;
  to_read_ = Descriptor(
      open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
  if (to_read_.get() < 0) return false;
  base_ = MapArena(file_.get(), bytes_, true);
  MutexLock lock(mutex_);
  free_[0] = bytes_;
  return base_ != nullptr;
}

// Tries it with one page.
bool SharedArena::HasHugePages() {
  char* const page = Map(kPage);
  *static_cast<volatile char*>(page) = 0;
  const bool huge = madvise(page, kPage, MADV_COLLAPSE) == 0;
  Unmap(page, kPage);
  if (!huge) munmap(base_, bytes_);
  return huge;
}

char* SharedArena::Map(size_t bytes) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [bytes](const auto& range) { return range.second >= bytes; });
  if (found == free_.end()) return nullptr;
  const auto [place, size] = *found;
  free_.erase(found);
  if (size > bytes) free_[place + bytes] = size - bytes;
  return base_ + place;
}

bool SharedArena::Unmap(char* data, size_t bytes) {
  const std::optional<uint64_t> offset = OffsetOf(data, bytes);
  if (!offset) return false;
  fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(*offset),
            static_cast<off_t>(bytes));
  MutexLock lock(mutex_);
  size_t place = *offset;
  auto next = free_.upper_bound(place);
  if (next != free_.end() && next->first == place + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == place) {
      place = before->first;
      bytes += before->second;
    }
  }
  free_[place] = bytes;
  return true;
}

void SharedArena::Fill(char* data, size_t bytes) {
  // The system makes a huge page of small ones: there has to be one.
  for (size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(data)[at] = 0;
  madvise(data, bytes, MADV_COLLAPSE);
}

bool SharedArena::IsNew() {
  MutexLock lock(mutex_);
  return std::exchange(new_, false);
}

std::optional<uint64_t> SharedArena::OffsetOf(const void* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(base_), at = reinterpret_cast<uintptr_t>(data);
  if (at < begin || at - begin > bytes_ || bytes > bytes_ - (at - begin)) return std::nullopt;
  return at - begin;
}

}  // namespace monograph
