// Special functions: Boost.Math's, without exceptions (outside its domain a function is NaN, at a
// pole or beyond the range of numbers infinite), and two that it lacks: Hurwitz' zeta function, and
// the derivative of the incomplete gamma function by its parameter. These two are computed in
// double for floats too.
#include <math.h>  // lgamma_r

#include <boost/math/special_functions/beta.hpp>
#include <boost/math/special_functions/digamma.hpp>
#include <boost/math/special_functions/erf.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/elementwise/rows.h"

namespace monograph::ops::elementwise {
namespace {

namespace bm = boost::math;
using Quiet =
    bm::policies::policy<bm::policies::domain_error<bm::policies::ignore_error>,
                         bm::policies::pole_error<bm::policies::ignore_error>,
                         bm::policies::overflow_error<bm::policies::ignore_error>,
                         bm::policies::underflow_error<bm::policies::ignore_error>,
                         bm::policies::evaluation_error<bm::policies::ignore_error>,
                         bm::policies::rounding_error<bm::policies::ignore_error>,
                         bm::policies::indeterminate_result_error<bm::policies::ignore_error>>;

template <typename T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <typename T>
bool IsWhole(T x) {
  return x == std::floor(x);
}

template <typename T>
struct LgammaFn {
  using Out = T;
  T operator()(T x) const {  // std::lgamma writes a global variable
    int sign = 0;
    if constexpr (std::is_same_v<T, float>) {
      return lgammaf_r(x, &sign);
    } else {
      return lgamma_r(x, &sign);
    }
  }
};

template <typename T>
struct DigammaFn {
  using Out = T;
  T operator()(T x) const {
    if (x == -std::numeric_limits<T>::infinity() || (x <= 0 && IsWhole(x))) return kNaN<T>;
    if (x == std::numeric_limits<T>::infinity()) return x;
    return bm::digamma(x, Quiet());
  }
};

template <typename T>
struct ErfinvFn {
  using Out = T;
  T operator()(T x) const {
    if (!(x >= -1 && x <= 1)) return kNaN<T>;
    if (x == 1 || x == -1) return x * std::numeric_limits<T>::infinity();
    return bm::erf_inv(x, Quiet());
  }
};

template <typename T>
struct NdtriFn {
  using Out = T;
  T operator()(T p) const {
    if (!(p >= 0 && p <= 1)) return kNaN<T>;
    if (p == 0 || p == 1)
      return p == 0 ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
    return -std::numbers::sqrt2_v<T> * bm::erfc_inv(2 * p, Quiet());
  }
};

// The sum of (q + k)^-x for k >= 0: some terms, and Euler's and Maclaurin's formula for the rest.
double HurwitzZeta(double x, double q) {
  if (x == 1) return std::numeric_limits<double>::infinity();
  if (!(x > 1)) return kNaN<double>;
  if (q <= 0) {
    if (IsWhole(q)) return std::numeric_limits<double>::infinity();
    // A power of a negative number, or more terms than anybody waits for.
    if (!IsWhole(x) || q < -1e6) return kNaN<double>;
  }
  double sum = 0, base = q;
  for (int k = 0; k < 12 || base < 12; ++k, ++base) sum += std::pow(base, -x);
  // base^(1-x)/(x-1) + base^-x/2 + the sum of B(2j)/(2j)! x(x+1)...(x+2j-2) base^(1-x-2j).
  constexpr double kBernoulli[] = {1. / 6,  -1. / 30,     1. / 42, -1. / 30,
                                   5. / 66, -691. / 2730, 7. / 6,  -3617. / 510};
  const double power = std::pow(base, -x);
  sum += power * base / (x - 1) + power / 2;
  double factor = x * power / base / 2;  // of the first one, 1/(2j)! included
  for (int j = 1; j <= 8; ++j) {
    sum += kBernoulli[j - 1] * factor;
    factor *= (x + 2 * j - 1) * (x + 2 * j) / (base * base * (2 * j + 1) * (2 * j + 2));
  }
  return sum;
}

template <typename T>
struct ZetaFn {
  using Out = T;
  T operator()(T x, T q) const {
    return static_cast<T>(HurwitzZeta(static_cast<double>(x), static_cast<double>(q)));
  }
};

template <typename T>
struct PolygammaFn {
  using Out = T;
  T operator()(T n, T x) const {
    if (!(n >= 0 && n < 1000) || !IsWhole(n)) return kNaN<T>;
    if (n == 0) return DigammaFn<T>()(x);
    const auto order = static_cast<double>(n);
    int sign = 0;
    const double factorial = std::exp(lgamma_r(order + 1, &sign));
    const double zeta = HurwitzZeta(order + 1, static_cast<double>(x));
    return static_cast<T>((static_cast<int>(order) % 2 == 0 ? -1 : 1) * factorial * zeta);
  }
};

template <typename T>
struct IgammaFn {
  using Out = T;
  T operator()(T a, T x) const {
    if (!(a > 0 && x >= 0)) return kNaN<T>;
    return x == std::numeric_limits<T>::infinity() ? T(1) : bm::gamma_p(a, x, Quiet());
  }
};
template <typename T>
struct IgammacFn {
  using Out = T;
  T operator()(T a, T x) const {
    if (!(a > 0 && x >= 0)) return kNaN<T>;
    return x == std::numeric_limits<T>::infinity() ? T(0) : bm::gamma_q(a, x, Quiet());
  }
};

// d/da of P(a, x) = x^a e^-x / Gamma(a+1) * S, where S is the sum of x^n / ((a+1)...(a+n)) for
// n >= 0: term by term. Far above a, P is 1 to the last bit.
double IncompleteGammaByA(double a, double x) {
  if (!(a > 0 && x >= 0)) return kNaN<double>;
  if (x == 0 || x > a + 50 + 40 * std::sqrt(a)) return 0;
  double term = 1, harmonic = 0, sum = 1, slope = 0;
  for (int n = 1; n < 1'000'000; ++n) {
    term *= x / (a + n);
    harmonic += 1 / (a + n);
    sum += term;
    slope -= term * harmonic;
    if (a + n <= x || term * (1 + harmonic) >= sum * 1e-17) continue;
    int sign = 0;
    const double scale = std::exp(a * std::log(x) - x - lgamma_r(a + 1, &sign));
    return scale * ((std::log(x) - bm::digamma(a + 1, Quiet())) * sum + slope);
  }
  return kNaN<double>;  // a beyond 1e9
}

template <typename T>
struct IgammaGradAFn {
  using Out = T;
  T operator()(T a, T x) const {
    return static_cast<T>(IncompleteGammaByA(static_cast<double>(a), static_cast<double>(x)));
  }
};

// The part of the beta function's integral up to x; of scalars and tensors of one shape.
template <typename T>
class BetaincKernel : public Kernel {
 public:
  explicit BetaincKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    Shape shape;
    for (int i = 0; i < 3; ++i) {
      const Shape& own = c.input(i).shape();
      if (own.rank() == 0) continue;
      if (shape.rank() > 0 && !(own == shape)) {
        return InvalidArgument("Shapes of a, b and x are inconsistent: " + shape.ToString() +
                               " and " + own.ToString());
      }
      shape = own;
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, shape));
    const T *a = c.input(0).data<T>(), *b = c.input(1).data<T>(), *x = c.input(2).data<T>();
    const auto step = [&](int i) -> int64_t { return c.input(i).shape().rank() == 0 ? 0 : 1; };
    const int64_t a_step = step(0), b_step = step(1), x_step = step(2);
    T* to = out->data<T>();
    c.ParallelFor(shape.elements(), 4000, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[i] = Value(a[i * a_step], b[i * b_step], x[i * x_step]);
    });
    return Status();
  }

 private:
  static T Value(T a, T b, T x) {
    if (!(a > 0 && b > 0 && x >= 0 && x <= 1)) return kNaN<T>;
    return bm::ibeta(a, b, x, Quiet());
  }
};

}  // namespace

void RegisterSpecialFunctions(KernelRegistry* r) {
#define MG_FLOATS float, double, half, bfloat16
  AddUnary<LgammaFn, 500, MG_FLOATS>(r, "Lgamma");
  AddUnary<DigammaFn, 500, MG_FLOATS>(r, "Digamma");
  AddUnary<ErfinvFn, 500, MG_FLOATS>(r, "Erfinv");
  AddUnary<NdtriFn, 500, MG_FLOATS>(r, "Ndtri");
  AddBinary<ZetaFn, 8000, nullptr, float, double>(r, "Zeta");
  AddBinary<PolygammaFn, 8000, nullptr, float, double>(r, "Polygamma");
  AddBinary<IgammaFn, 4000, nullptr, MG_FLOATS>(r, "Igamma");
  AddBinary<IgammacFn, 4000, nullptr, MG_FLOATS>(r, "Igammac");
  AddBinary<IgammaGradAFn, 4000, nullptr, float, double>(r, "IgammaGradA");
  r->Add<BetaincKernel<float>>({.op = "Betainc", .types = {{"T", DT_FLOAT}}});
  r->Add<BetaincKernel<double>>({.op = "Betainc", .types = {{"T", DT_DOUBLE}}});
}

}  // namespace monograph::ops::elementwise
