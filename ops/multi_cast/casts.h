// What the kernels of _MultiCast have to do, on every device.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "executor/kernel.h"

namespace monograph::ops::multi_cast {

struct Casts {
  std::vector<DType> types;      // of each output: float, half or bfloat16
  std::vector<bool> last_first;  // whether its last dimension becomes the first

  static Result<Casts> Of(const KernelConstruction& k) {
    Casts casts{k.attr<std::vector<DType>>("DstT"), k.attr<std::vector<bool>>("last_first")};
    for (DType type : casts.types) {
      if (type != DT_FLOAT && type != DT_HALF && type != DT_BFLOAT16)
        return Unimplemented("_MultiCast makes float, half and bfloat16, not " +
                             std::string(DTypeName(type)));
    }
    return casts;
  }

  bool moves(int i, const Shape& from) const {
    return last_first[static_cast<size_t>(i)] && from.rank() > 1;
  }
  Shape OutputShape(int i, const Shape& from) const {
    if (!moves(i, from)) return from;
    std::vector<int64_t> dims(from.dims().begin(), from.dims().end());
    std::rotate(dims.begin(), dims.end() - 1, dims.end());
    return Shape(dims);
  }
};

}  // namespace monograph::ops::multi_cast
