#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {
namespace {

template <typename T>
struct AndFn {
  using Out = T;
  T operator()(T x, T y) const { return T(x & y); }
};
template <typename T>
struct OrFn {
  using Out = T;
  T operator()(T x, T y) const { return T(x | y); }
};
template <typename T>
struct XorFn {
  using Out = T;
  T operator()(T x, T y) const { return T(x ^ y); }
};

// How far a shift by y goes.
template <typename T>
int Places(T y) {
  return static_cast<int>(std::clamp<T>(y, 0, static_cast<T>(sizeof(T) * 8 - 1)));
}
template <typename T>
struct LeftShiftFn {
  using Out = T;
  T operator()(T x, T y) const {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(static_cast<Bits>(x) << Places(y)));
  }
};
template <typename T>
struct RightShiftFn {
  using Out = T;
  T operator()(T x, T y) const { return static_cast<T>(x >> Places(y)); }
};

template <typename T>
struct InvertFn {
  using Out = T;
  T operator()(T x) const { return static_cast<T>(~x); }
};
template <typename T>
struct PopulationCountFn {
  using Out = uint8_t;
  uint8_t operator()(T x) const {
    return static_cast<uint8_t>(std::popcount(static_cast<std::make_unsigned_t<T>>(x)));
  }
};

}  // namespace

void RegisterBitwise(KernelRegistry* r) {
#define MG_BITS int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
  AddBinary<AndFn, 2, nullptr, MG_BITS>(r, "BitwiseAnd");
  AddBinary<OrFn, 2, nullptr, MG_BITS>(r, "BitwiseOr");
  AddBinary<XorFn, 2, nullptr, MG_BITS>(r, "BitwiseXor");
  AddBinary<LeftShiftFn, 10, nullptr, MG_BITS>(r, "LeftShift");
  AddBinary<RightShiftFn, 10, nullptr, MG_BITS>(r, "RightShift");
  AddUnary<InvertFn, 2, MG_BITS>(r, "Invert");
  AddUnary<PopulationCountFn, 16, MG_BITS>(r, "PopulationCount");
}

}  // namespace monograph::ops::elementwise
