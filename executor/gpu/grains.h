// Grains: the elements of several tensors, one tensor after the other, counted in grains of 64:
// what is cut at a grain begins at an aligned address. A tensor's last grain may have fewer
// elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shape.h"

namespace monograph {

// Elements [begin, end) of one tensor of a list.
struct TensorPart {
  uint32_t tensor = 0;
  int64_t begin = 0, end = 0;
  int64_t elements() const { return end - begin; }
  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

class Grains {
 public:
  static constexpr int64_t kElements = 64;

  explicit Grains(std::span<const Shape> tensors);
  int64_t count() const { return firsts_.back(); }
  // The elements of grains [begin, end), in their order; no part is empty.
  std::vector<TensorPart> Parts(int64_t begin, int64_t end) const;

 private:
  std::vector<int64_t> elements_;  // by tensor
  std::vector<int64_t> firsts_;    // by tensor: its first grain; then their number
};

}  // namespace monograph
