// DTypeOf complex numbers, apart from base/dtype.h, as few sources need <complex>.
#pragma once

#include <complex>

#include "base/dtype.h"

namespace monograph {

template <>
struct DTypeOf<std::complex<float>> {
  static constexpr DType kValue = DT_COMPLEX64;
};
template <>
struct DTypeOf<std::complex<double>> {
  static constexpr DType kValue = DT_COMPLEX128;
};

}  // namespace monograph
