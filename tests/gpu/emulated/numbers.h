// What cuBLASLt and cuDNN compute with, as floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace monograph::emulated {

inline double Load(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DT_DOUBLE:
      return static_cast<const double*>(data)[i];
    case DT_HALF:
      return static_cast<float>(static_cast<const half*>(data)[i]);
    case DT_BFLOAT16:
      return static_cast<float>(static_cast<const bfloat16*>(data)[i]);
    case DT_INT32:
      return static_cast<const int32_t*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}

inline void Store(DType dtype, void* data, int64_t i, double value) {
  switch (dtype) {
    case DT_DOUBLE:
      static_cast<double*>(data)[i] = value;
      break;
    case DT_HALF:
      static_cast<half*>(data)[i] = half(static_cast<float>(value));
      break;
    case DT_BFLOAT16:
      static_cast<bfloat16*>(data)[i] = bfloat16(static_cast<float>(value));
      break;
    case DT_INT32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      break;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

}  // namespace monograph::emulated
