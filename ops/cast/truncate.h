// Cast with Truncate: the digits that the result has no place for are cut off instead of rounded.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::cast {

// How many bits of the source's fraction are cut off. As in TensorFlow, only where a float becomes
// a half or a bfloat16, or a double a half or a float; other casts do not know the attribute.
inline int BitsToCut(DType from, DType to) {
  if (from == DT_FLOAT) return to == DT_HALF ? 13 : to == DT_BFLOAT16 ? 16 : 0;
  if (from == DT_DOUBLE) return to == DT_HALF ? 42 : to == DT_FLOAT ? 29 : 0;
  return 0;
}

// `x` with `bits` bits of its fraction cut off; a NaN stays one.
template <typename T>
MG_HD T CutBits(T x, int bits) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (bits == 0 || x != x) return x;
    using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    return std::bit_cast<T>(static_cast<Word>(std::bit_cast<Word>(x) >> bits << bits));
  } else {
    return x;
  }
}

}  // namespace monograph::ops::cast
