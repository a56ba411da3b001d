#include "executor/gpu/shares.h"

#include <algorithm>

namespace monograph {

std::vector<std::vector<TensorPart>> CutShares(std::span<const Shape> tensors, int ranks) {
  constexpr int64_t kGrain = 64;
  const auto aligned = [](int64_t elements) { return (elements + kGrain - 1) / kGrain * kGrain; };
  std::vector<std::vector<TensorPart>> shares(static_cast<size_t>(ranks));
  int64_t total = 0;
  for (const Shape& shape : tensors) total += shape.elements();
  const int64_t share = aligned((total + ranks - 1) / ranks);
  size_t rank = 0;
  int64_t room = share;
  for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const int64_t elements = tensors[tensor].elements();
    for (int64_t begin = 0; begin < elements;) {
      const bool last = rank + 1 == shares.size();
      const int64_t end = last ? elements : std::min(elements, begin + aligned(room));
      shares[rank].push_back({tensor, begin, end});
      room -= end - begin;
      begin = end;
      if (room <= 0 && !last) {
        ++rank;
        room = share;
      }
    }
  }
  return shares;
}

}  // namespace monograph
