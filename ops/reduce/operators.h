// What reductions combine elements with.
#pragma once

#include <limits>

#include "ops/gpu/device_code.h"

namespace monograph::ops::reduce {

template <typename T>
struct SumOp {
  MG_HD static T Zero() { return T(0); }
  MG_HD static T Combine(T a, T b) { return T(a + b); }
};
template <typename T>
struct ProdOp {
  MG_HD static T Zero() { return T(1); }
  MG_HD static T Combine(T a, T b) { return T(a * b); }
};
// NaN wins.
template <typename T>
struct MaxOp {
  MG_HD static T Zero() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  MG_HD static T Combine(T a, T b) { return a >= b || a != a ? a : b; }
};
template <typename T>
struct MinOp {
  MG_HD static T Zero() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
  MG_HD static T Combine(T a, T b) { return a <= b || a != a ? a : b; }
};
template <typename T>
struct AllOp {
  MG_HD static T Zero() { return true; }
  MG_HD static T Combine(T a, T b) { return a && b; }
};
template <typename T>
struct AnyOp {
  MG_HD static T Zero() { return false; }
  MG_HD static T Combine(T a, T b) { return a || b; }
};

}  // namespace monograph::ops::reduce
