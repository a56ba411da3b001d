// Bessel functions by Boost.Math, in double for all types. Those that are scaled by exp(x) go by
// their asymptotic series where x is so large that the exponential would leave the range of
// numbers.
#include <boost/math/special_functions/bessel.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {
namespace {

namespace bp = boost::math::policies;
using BesselPolicy =
    bp::policy<bp::domain_error<bp::ignore_error>, bp::pole_error<bp::ignore_error>,
               bp::overflow_error<bp::ignore_error>, bp::underflow_error<bp::ignore_error>,
               bp::denorm_error<bp::ignore_error>, bp::evaluation_error<bp::ignore_error>,
               bp::rounding_error<bp::ignore_error>, bp::promote_double<false>>;

constexpr double kNoEnd = std::numeric_limits<double>::infinity();
constexpr double kSeriesFrom = 100;  // the asymptotic series is exact from here on

// 1 + s*(m-1)/(8x) + s^2*(m-1)(m-9)/(2!(8x)^2) + ... with m = 4*order^2. Source: NIST's Digital
// Library of Mathematical Functions, 10.40(i). REQUIRES: x >= kSeriesFrom.
double AsymptoticSeries(int order, double sign, double x) {
  double sum = 1, term = 1;
  for (int k = 1; k < 20; ++k) {
    const int odd = 2 * k - 1;
    term *= sign * (4 * order * order - odd * odd) / (8 * k * x);
    sum += term;
  }
  return sum;
}

double BesselI(int order, double x) {
  const double size = std::abs(x);
  const double value =
      size == kNoEnd ? kNoEnd : boost::math::cyl_bessel_i(order, size, BesselPolicy());
  return order == 1 ? std::copysign(value, x) : value;
}
double BesselScaledI(int order, double x) {
  const double size = std::abs(x);
  const double value =
      size >= kSeriesFrom
          ? AsymptoticSeries(order, -1, size) / std::sqrt(2 * std::numbers::pi * size)
          : std::exp(-size) * boost::math::cyl_bessel_i(order, size, BesselPolicy());
  return order == 1 ? std::copysign(value, x) : value;
}
double BesselJ(int order, double x) {
  const double size = std::abs(x);
  const double value = size == kNoEnd ? 0 : boost::math::cyl_bessel_j(order, size, BesselPolicy());
  return order == 1 && x < 0 ? -value : value;
}
double BesselY(int order, double x) {
  if (x <= 0) return -kNoEnd;
  return x == kNoEnd ? 0 : boost::math::cyl_neumann(order, x, BesselPolicy());
}
double BesselK(int order, double x) {
  if (x <= 0) return kNoEnd;
  return x == kNoEnd ? 0 : boost::math::cyl_bessel_k(order, x, BesselPolicy());
}
double BesselScaledK(int order, double x) {
  if (x >= kSeriesFrom)
    return AsymptoticSeries(order, 1, x) * std::sqrt(std::numbers::pi / (2 * x));
  return x <= 0 ? kNoEnd : std::exp(x) * BesselK(order, x);
}

#define MG_BESSEL(name, function, order)                              \
  template <typename T>                                               \
  struct name {                                                       \
    using Out = T;                                                    \
    T operator()(T x) const {                                         \
      if (std::isnan(x)) return x;                                    \
      return static_cast<T>(function(order, static_cast<double>(x))); \
    }                                                                 \
  };
MG_BESSEL(I0Fn, BesselI, 0)
MG_BESSEL(I1Fn, BesselI, 1)
MG_BESSEL(I0eFn, BesselScaledI, 0)
MG_BESSEL(I1eFn, BesselScaledI, 1)
MG_BESSEL(J0Fn, BesselJ, 0)
MG_BESSEL(J1Fn, BesselJ, 1)
MG_BESSEL(Y0Fn, BesselY, 0)
MG_BESSEL(Y1Fn, BesselY, 1)
MG_BESSEL(K0Fn, BesselK, 0)
MG_BESSEL(K1Fn, BesselK, 1)
MG_BESSEL(K0eFn, BesselScaledK, 0)
MG_BESSEL(K1eFn, BesselScaledK, 1)
#undef MG_BESSEL

}  // namespace

void RegisterBesselFunctions(KernelRegistry* r) {
#define MG_ADD(name) AddUnary<name##Fn, 200, float, double, half, bfloat16>(r, "Bessel" #name);
  MG_ADD(I0)
  MG_ADD(I0e)
  MG_ADD(I1)
  MG_ADD(I1e)
  MG_ADD(J0)
  MG_ADD(J1)
  MG_ADD(K0)
  MG_ADD(K0e)
  MG_ADD(K1)
  MG_ADD(K1e)
  MG_ADD(Y0)
  MG_ADD(Y1)
#undef MG_ADD
}

}  // namespace monograph::ops::elementwise
