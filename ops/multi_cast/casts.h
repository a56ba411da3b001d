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
  bool back;                     // the first one the last instead

  static Result<Casts> Of(const KernelConstruction& k) {
    Casts casts{k.attr<std::vector<DType>>("DstT"), k.attr<std::vector<bool>>("last_first"),
                k.attr<bool>("back")};
    const auto& from = k.attr<std::vector<DType>>("SrcT");
    for (size_t i = 0; i < casts.types.size(); ++i) {
      const DType to = casts.types[i];
      if ((to != DT_FLOAT && to != DT_HALF && to != DT_BFLOAT16) ||
          (from[i] != DT_FLOAT && from[i] != to)) {
        return Unimplemented(
            "_MultiCast makes float, half and bfloat16 of float and of the same, "
            "not " +
            std::string(DTypeName(to)) + " of " + std::string(DTypeName(from[i])));
      }
    }
    return casts;
  }

  bool moves(int i, const Shape& from) const {
    return last_first[static_cast<size_t>(i)] && from.rank() > 1;
  }
  Shape OutputShape(int i, const Shape& from) const {
    if (!moves(i, from)) return from;
    std::vector<int64_t> dims(from.dims().begin(), from.dims().end());
    std::rotate(dims.begin(), back ? dims.begin() + 1 : dims.end() - 1, dims.end());
    return Shape(dims);
  }
  // The columns of the matrix that is transposed if input i `moves`.
  int64_t Columns(const Shape& from) const {
    return back ? from.elements() / from[0] : from[from.rank() - 1];
  }
};

}  // namespace monograph::ops::multi_cast
