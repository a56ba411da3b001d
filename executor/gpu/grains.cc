#include "executor/gpu/grains.h"

#include <algorithm>

namespace monograph {

Grains::Grains(std::span<const Shape> tensors) : firsts_{0} {
  for (const Shape& shape : tensors) {
    elements_.push_back(shape.elements());
    firsts_.push_back(firsts_.back() + (elements_.back() + kElements - 1) / kElements);
  }
}

std::vector<TensorPart> Grains::Parts(int64_t begin, int64_t end) const {
  std::vector<TensorPart> parts;
  // The last tensor that begins at `begin` or before; those without elements come before it.
  const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), begin);
  for (auto tensor = static_cast<size_t>(after - firsts_.begin()) - 1; begin < end; ++tensor) {
    const int64_t last = std::min(end, firsts_[tensor + 1]);
    if (last == begin) continue;
    parts.push_back({static_cast<uint32_t>(tensor), (begin - firsts_[tensor]) * kElements,
                     std::min((last - firsts_[tensor]) * kElements, elements_[tensor])});
    begin = last;
  }
  return parts;
}

}  // namespace monograph
