#include "executor/step/loop_arrivals.h"

#include <set>
#include <utility>

#include "base/pool_allocator.h"
#include "executor/step/iteration.h"

namespace monograph {

bool LoopArrivals::Take(uint32_t edge, Iteration* iteration, Tensor* tensor) {
  MutexLock lock(mutex_);
  const auto entry = entries_.try_emplace({iteration->id, edge}).first;
  if (!entry->second.here) {
    entry->second.waits = iteration;
    ++waiting_;
    return false;
  }
  *tensor = std::move(entry->second.tensor);
  entries_.erase(entry);
  return true;
}

LoopArrivals::Brought LoopArrivals::Bring(uint32_t edge, uint64_t id, Tensor tensor,
                                          Iteration** iteration) {
  // What very many of them take counts against the limit of the host's pool.
  constexpr size_t kPlaces = 8192, kPlaceBytes = sizeof(Key) + sizeof(Entry) + 4 * sizeof(void*);
  MutexLock lock(mutex_);
  const auto [found, added] = entries_.try_emplace({id, edge});
  Entry& entry = found->second;
  if (entry.here) return Brought::kTwice;
  if (added && entries_.size() / kPlaces > room_.size() &&
      room_.emplace_back(HostPool().Reserve(kPlaces * kPlaceBytes)) == nullptr) {
    room_.pop_back();
    entries_.erase(found);
    return Brought::kNoMemory;
  }
  ++brought_;
  entry.here = true;
  entry.tensor = std::move(tensor);
  *iteration = std::exchange(entry.waits, nullptr);
  if (*iteration == nullptr) return Brought::kKept;
  --waiting_;
  return Brought::kAwaited;
}

bool LoopArrivals::any_wait() const {
  MutexLock lock(mutex_);
  return waiting_ > 0;
}

std::vector<uint32_t> LoopArrivals::awaited() const {
  std::set<uint32_t> edges;
  MutexLock lock(mutex_);
  if (waiting_ == 0) return {};
  for (const auto& [key, entry] : entries_) {
    if (entry.waits != nullptr) edges.insert(key.edge);
  }
  return {edges.begin(), edges.end()};
}

int64_t LoopArrivals::brought() const {
  MutexLock lock(mutex_);
  return brought_;
}

void LoopArrivals::Clear() {
  MutexLock lock(mutex_);
  entries_.clear();
  room_.clear();
  waiting_ = brought_ = 0;
}

}  // namespace monograph
