// StringRoom: room in the limit of the process's memory (--memory_limit) for the strings that one
// run of a kernel makes. What they own lies outside of the pool, so it is counted apart: roughly
// while they are made, so that a kernel that multiplies them stops in time, and exactly at the end,
// when each output keeps what it holds (Tensor::CountStrings).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_holder.h"
#include "base/mutex.h"
#include "base/tensor.h"

namespace monograph {

class StringRoom {
 public:
  // Before a kernel runs whose outputs are `holder`'s, who outlives the run.
  void Begin(MemoryHolder* holder) { holder_ = holder; }
  // Takes room for so many bytes more; false, from then on, if there is none. Thread-safe.
  bool Take(size_t bytes);
  // After the kernel has ended with `status`: gives that room back, and takes what the outputs
  // need. ResourceExhausted if that, or what Take was asked for, is not to be had; the outputs are
  // then to be dropped.
  Status Settle(const Status& status, std::span<const Tensor> outputs);

 private:
  // What a kernel makes without asking, and what is taken at once at least.
  static constexpr size_t kStep = size_t{1} << 20;

  MemoryHolder* holder_ = nullptr;
  // Relaxed, all uses: counters; the rooms are behind the mutex.
  std::atomic<size_t> made_{0}, room_{kStep};
  std::atomic<bool> refused_{false};
  Mutex mutex_;
  std::vector<std::shared_ptr<void>> rooms_ MG_GUARDED_BY(mutex_);
  Status refusal_ MG_GUARDED_BY(mutex_);
};

}  // namespace monograph
