// RunningNode: which node of which step a thread runs, for whoever asks why a step stands still.
//
// Each thread has one and writes to it for every node: a plain store to memory of its own. It is
// read only when a step has stood still for long. Nothing is published by it: what a reader sees
// may be a moment old.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace monograph {

class Step;

class RunningNode {
 public:
  static RunningNode& Mine();  // this thread's
  // The nodes of `step` that threads run, in no order. REQUIRES: the step is not over.
  static std::vector<int32_t> Of(const Step& step);

  // Relaxed, all of them: see above.
  void Set(int32_t node) { node_.store(node, std::memory_order_relaxed); }
  int32_t node() const { return node_.load(std::memory_order_relaxed); }
  // Of which step the node is; nullptr: the thread runs none.
  void SetStep(const Step* step) { step_.store(step, std::memory_order_relaxed); }
  const Step* step() const { return step_.load(std::memory_order_relaxed); }

 private:
  RunningNode();
  ~RunningNode();

  std::atomic<const Step*> step_{nullptr};
  std::atomic<int32_t> node_{-1};
};

}  // namespace monograph
