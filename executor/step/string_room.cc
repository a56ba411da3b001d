#include "executor/step/string_room.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/pool_allocator.h"

namespace monograph {

bool StringRoom::Take(size_t bytes) {
  const size_t made = made_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (refused_.load(std::memory_order_relaxed)) return false;
  if (made <= room_.load(std::memory_order_relaxed)) return true;
  const MemoryHolder::Scope memory(holder_);  // on whichever thread this is
  MutexLock lock(mutex_);
  const size_t there = room_.load(std::memory_order_relaxed);
  if (made <= there) return true;
  const size_t wanted = std::max(made - there, kStep);
  std::shared_ptr<void> room = HostPool().Reserve(wanted);
  if (room == nullptr) {
    refusal_ = ResourceExhausted("no memory for " + std::to_string(made) +
                                 " bytes of strings: " + HostPool().Explain(wanted));
    refused_.store(true, std::memory_order_relaxed);
    return false;
  }
  rooms_.push_back(std::move(room));
  room_.store(there + wanted, std::memory_order_relaxed);
  return true;
}

Status StringRoom::Settle(const Status& status, std::span<const Tensor> outputs) {
  Status refusal;
  {
    MutexLock lock(mutex_);
    rooms_.clear();
    refusal = std::exchange(refusal_, Status());
  }
  // Relaxed: the kernel has ended.
  made_.store(0, std::memory_order_relaxed);
  room_.store(kStep, std::memory_order_relaxed);
  refused_.store(false, std::memory_order_relaxed);
  if (!refusal.ok()) return refusal;
  if (!status.ok()) return status;
  const MemoryHolder::Scope memory(holder_);
  for (const Tensor& output : outputs) {
    if (output.valid()) MG_RETURN_IF_ERROR(output.CountStrings());
  }
  return status;
}

}  // namespace monograph
