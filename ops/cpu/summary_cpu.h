// Tensors as text in messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace monograph {

// The first values of a tensor as text, one for each element.
inline std::vector<std::string> FirstValues(const Tensor& tensor, int64_t count) {
  if (tensor.dtype() == DT_STRING) return {tensor.strings(), tensor.strings() + count};
  const std::string text = tensor.ToString(static_cast<int>(count));
  std::istringstream words(text.substr(text.find(" =") + 2));
  std::vector<std::string> values(static_cast<size_t>(count));
  for (std::string& value : values) words >> value;
  return values;
}

// A tensor as TensorFlow's Assert and Print show it: "[0 1][2...]..." for [2,2] and three values.
// A negative number stands for all values, as far as a line may hold them.
inline std::string SummaryOf(const Tensor& tensor, int64_t summarize) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const int64_t all = tensor.elements(),
                limit = std::min({all, kMost, summarize < 0 ? all : summarize});
  const std::vector<std::string> values = FirstValues(tensor, limit);
  const std::span<const int64_t> dims = tensor.shape().dims();
  std::string text;
  int64_t next = 0;
  const auto print = [&](const auto& self, size_t axis) -> void {
    const int64_t size = axis < dims.size() ? dims[axis] : 1;
    for (int64_t i = 0; i < size; ++i) {
      if (next >= limit) {
        if (axis > 0 && axis + 1 == dims.size()) text += "...";
        return;
      }
      if (axis + 1 >= dims.size()) {
        text += (i > 0 ? " " : "") + values[static_cast<size_t>(next++)];
      } else {
        text += "[";
        self(self, axis + 1);
        text += "]";
      }
    }
  };
  print(print, 0);
  return limit < all ? text + "..." : text;
}

}  // namespace monograph
