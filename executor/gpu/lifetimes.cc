#include "executor/gpu/lifetimes.h"

#include <algorithm>
#include <numeric>

namespace monograph {

MemoryPlan PlanMemory(std::span<const Lifetime> blocks, size_t alignment) {
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  const auto aligned = [alignment](size_t bytes) {
    return (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  };
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<size_t> placed;  // by offset
  for (const size_t block : order) {
    const Lifetime& life = blocks[block];
    const size_t bytes = aligned(life.bytes);
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    for (const size_t other : placed) {
      if (blocks[other].birth >= life.death || life.birth >= blocks[other].death) continue;
      const size_t begin = plan.offsets[other];
      if (begin >= end && begin - end >= bytes && begin - end < best_gap) {
        best = end;
        best_gap = begin - end;
      }
      end = std::max(end, begin + aligned(blocks[other].bytes));
    }
    plan.offsets[block] = best == SIZE_MAX ? end : best;
    plan.bytes = std::max(plan.bytes, plan.offsets[block] + bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), block,
                         [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
        block);
  }
  return plan;
}

}  // namespace monograph
