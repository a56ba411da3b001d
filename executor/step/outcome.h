// StepOutcome: how a step ends, settled once by whoever comes first. Thread-safe.
#pragma once

#include <atomic>

namespace monograph {

class StepOutcome {
 public:
  enum Value : int { kOpen, kComplete, kAborted };

  // Whether this call has settled it.
  bool Settle(Value value) {
    int expected = kOpen;
    return value_.compare_exchange_strong(expected, value, std::memory_order_acq_rel);
  }
  bool complete() const { return value_.load(std::memory_order_relaxed) == kComplete; }
  // Relaxed: whether it is worth going on. What an abort changes is read under a lock, or after the
  // step's last Release. A thread that learns by a synchronising operation that another one has
  // seen an abort sees it, too.
  bool aborted() const { return value_.load(std::memory_order_relaxed) == kAborted; }

 private:
  std::atomic<int> value_{kOpen};
};

}  // namespace monograph
