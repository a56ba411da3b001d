// What each elementwise op does to one element. Integers wrap (the compiler is told -fwrapv);
// 16-bit floats are computed as floats.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/elementwise/math.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::elementwise {

#define MG_BINARY_FUNCTOR(Name, expression)                      \
  template <typename T>                                          \
  struct Name {                                                  \
    using Out = T;                                               \
    MG_HD T operator()(T x, T y) const { return T(expression); } \
  };
#define MG_COMPARISON_FUNCTOR(Name, expression)                  \
  template <typename T>                                          \
  struct Name {                                                  \
    using Out = bool;                                            \
    MG_HD bool operator()(T x, T y) const { return expression; } \
  };
#define MG_UNARY_FUNCTOR(Name, expression)                  \
  template <typename T>                                     \
  struct Name {                                             \
    using Out = T;                                          \
    MG_HD T operator()(T x) const { return T(expression); } \
  };

// x / y for integers without the one quotient that overflows. REQUIRES: y != 0.
template <typename T>
MG_HD T Quotient(T x, T y) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    if (y == T(-1)) return T(0 - x);
  }
  return T(x / y);
}

template <typename T>
MG_HD T FloorQuotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    const T q = Quotient(x, y);
    return T(q - ((T(x - q * y) != 0 && ((x < 0) != (y < 0))) ? 1 : 0));
  } else {
    return std::floor(x / y);
  }
}

template <typename T>
MG_HD T FloorRemainder(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return T(x - FloorQuotient(x, y) * y);
  } else {
    const T r = std::fmod(x, y);
    return r != 0 && ((r < 0) != (y < 0)) ? r + y : r;
  }
}

// x - Quotient(x, y) * y, of floats with the quotient cut to a whole number.
template <typename T>
MG_HD T Remainder(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return T(x - Quotient(x, y) * y);
  } else {
    return std::fmod(x, y);
  }
}

// x / y, as a whole number.
template <typename T>
MG_HD T WholeQuotient(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    return Quotient(x, y);
  } else {
    return std::trunc(x / y);
  }
}

// REQUIRES for integers: y >= 0.
template <typename T>
MG_HD T Power(T x, T y) {
  if constexpr (std::is_integral_v<T>) {
    T result = 1;
    for (; y > 0; y = T(y >> 1), x = T(x * x)) {
      if ((y & 1) != 0) result = T(result * x);
    }
    return result;
  } else {
    return std::pow(x, y);
  }
}

MG_BINARY_FUNCTOR(AddFn, x + y)
MG_BINARY_FUNCTOR(SubFn, x - y)
MG_BINARY_FUNCTOR(MulFn, x* y)
MG_BINARY_FUNCTOR(DivFn, Quotient(x, y))
MG_BINARY_FUNCTOR(FloorDivFn, FloorQuotient(x, y))
MG_BINARY_FUNCTOR(FloorModFn, FloorRemainder(x, y))
MG_BINARY_FUNCTOR(DivNoNanFn, y == 0 ? T(0) : x / y)
MG_BINARY_FUNCTOR(TruncateDivFn, WholeQuotient(x, y))
MG_BINARY_FUNCTOR(TruncateModFn, Remainder(x, y))
MG_BINARY_FUNCTOR(MulNoNanFn, y == 0 ? T(0) : x * y)
MG_BINARY_FUNCTOR(XlogyFn, x == 0 ? T(0) : x * std::log(y))
MG_BINARY_FUNCTOR(Xlog1pyFn, x == 0 ? T(0) : x * std::log1p(y))
MG_BINARY_FUNCTOR(XdivyFn, x == 0 ? T(0) : x / y)
MG_BINARY_FUNCTOR(Atan2Fn, std::atan2(x, y))
MG_BINARY_FUNCTOR(NextAfterFn, std::nextafter(x, y))
MG_BINARY_FUNCTOR(MaximumFn, x >= y || x != x ? x : y)
MG_BINARY_FUNCTOR(MinimumFn, x <= y || x != x ? x : y)
MG_BINARY_FUNCTOR(PowFn, Power(x, y))
MG_BINARY_FUNCTOR(SquaredDifferenceFn, (x - y) * (x - y))
MG_BINARY_FUNCTOR(SigmoidGradFn,
                  y*(x*(1 - x)))  // x is the op's output, y its gradient, here and below
MG_BINARY_FUNCTOR(TanhGradFn, y*(1 - x * x))
MG_BINARY_FUNCTOR(SqrtGradFn, T(0.5) * y / x)
MG_BINARY_FUNCTOR(RsqrtGradFn, T(-0.5) * y * (x * x * x))
MG_BINARY_FUNCTOR(ReciprocalGradFn, -y*(x* x))

MG_COMPARISON_FUNCTOR(EqualFn, x == y)
MG_COMPARISON_FUNCTOR(NotEqualFn, x != y)
MG_COMPARISON_FUNCTOR(LessFn, x < y)
MG_COMPARISON_FUNCTOR(LessEqualFn, x <= y)
MG_COMPARISON_FUNCTOR(GreaterFn, x > y)
MG_COMPARISON_FUNCTOR(GreaterEqualFn, x >= y)
MG_COMPARISON_FUNCTOR(LogicalAndFn, static_cast<bool>(x& y))
MG_COMPARISON_FUNCTOR(LogicalOrFn, static_cast<bool>(x | y))

template <typename T>
MG_HD T Exponential(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return ExpF(x);
  } else {
    return std::exp(x);
  }
}
template <typename T>
MG_HD T Logarithm(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return LogF(x);
  } else {
    return std::log(x);
  }
}
template <typename T>
MG_HD T HyperbolicTangent(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return TanhF(x);
  } else {
    return std::tanh(x);
  }
}
template <typename T>
MG_HD T HalfToEven(T x) {
  if constexpr (std::is_integral_v<T>) {
    return x;
  } else {
    return std::nearbyint(x);
  }
}

MG_UNARY_FUNCTOR(NegFn, -x)
MG_UNARY_FUNCTOR(ExpFn, Exponential(x))
MG_UNARY_FUNCTOR(LogFn, Logarithm(x))
MG_UNARY_FUNCTOR(Log1pFn, std::log1p(x))
MG_UNARY_FUNCTOR(SqrtFn, std::sqrt(x))
MG_UNARY_FUNCTOR(RsqrtFn, T(1) / std::sqrt(x))
MG_UNARY_FUNCTOR(SquareFn, x* x)
MG_UNARY_FUNCTOR(AbsFn, x < 0 ? T(-x) : (x == 0 ? T(0) : x))
MG_UNARY_FUNCTOR(SignFn, x > 0 ? T(1) : (x < 0 ? T(-1) : (x == 0 ? T(0) : x)))
MG_UNARY_FUNCTOR(ReciprocalFn, Quotient(T(1), x))
MG_UNARY_FUNCTOR(SigmoidFn, T(1) / (T(1) + Exponential(-x)))
MG_UNARY_FUNCTOR(TanhFn, HyperbolicTangent(x))
MG_UNARY_FUNCTOR(SinFn, std::sin(x))
MG_UNARY_FUNCTOR(CosFn, std::cos(x))
MG_UNARY_FUNCTOR(FloorFn, std::floor(x))
MG_UNARY_FUNCTOR(CeilFn, std::ceil(x))
MG_UNARY_FUNCTOR(RoundFn, HalfToEven(x))

MG_UNARY_FUNCTOR(TanFn, std::tan(x))
MG_UNARY_FUNCTOR(AsinFn, std::asin(x))
MG_UNARY_FUNCTOR(AcosFn, std::acos(x))
MG_UNARY_FUNCTOR(AtanFn, std::atan(x))
MG_UNARY_FUNCTOR(SinhFn, std::sinh(x))
MG_UNARY_FUNCTOR(CoshFn, std::cosh(x))
MG_UNARY_FUNCTOR(AsinhFn, std::asinh(x))
MG_UNARY_FUNCTOR(AcoshFn, std::acosh(x))
MG_UNARY_FUNCTOR(AtanhFn, std::atanh(x))
MG_UNARY_FUNCTOR(Expm1Fn, std::expm1(x))
MG_UNARY_FUNCTOR(ErfFn, std::erf(x))
MG_UNARY_FUNCTOR(ErfcFn, std::erfc(x))

#define MG_TEST_FUNCTOR(Name, expression)                   \
  template <typename T>                                     \
  struct Name {                                             \
    using Out = bool;                                       \
    MG_HD bool operator()(T x) const { return expression; } \
  };
MG_TEST_FUNCTOR(LogicalNotFn, !x)
MG_TEST_FUNCTOR(IsNanFn, x != x)
MG_TEST_FUNCTOR(IsInfFn,
                x == std::numeric_limits<T>::infinity() || x == -std::numeric_limits<T>::infinity())
MG_TEST_FUNCTOR(IsFiniteFn, x - x == 0)

#undef MG_TEST_FUNCTOR
#undef MG_BINARY_FUNCTOR
#undef MG_COMPARISON_FUNCTOR
#undef MG_UNARY_FUNCTOR

}  // namespace monograph::ops::elementwise
