// Memory plan of one run: which blocks may share addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace monograph {

// A block that is needed from tick `birth` on, before tick `death`.
struct Lifetime {
  size_t bytes = 0;
  int32_t birth = 0, death = 0;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // by block
  size_t bytes = 0;             // of the whole
};

// Offsets that are multiples of `alignment`, so that blocks that live at the same time do not
// overlap. Largest block first, each in the smallest gap that fits (the greedy-by-size heuristic of
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
// Deterministic.
MemoryPlan PlanMemory(std::span<const Lifetime> blocks, size_t alignment);

}  // namespace monograph
