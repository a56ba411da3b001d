#include "ops/avx512_vectors.h"
#include "ops/conv/avx512_tiles.h"

namespace monograph::ops::avx512 {
namespace {

constexpr int kN = static_cast<int>(kPeriod);

// cos and sin of 2 pi k / 16 for k = 0 .. 4; the others by symmetry.
constexpr float kCos1 = 0.92387953251128675613f, kSin1 = 0.38268343236508977173f,
                kRoot = 0.70710678118654752440f;

// ---- transforms of 16 values
// -------------------------------------------------------------------------------------

// (re, im) *= exp(-2 pi i k / 16).
template <int k>
MG_INLINE void Turn(V* re, V* im) {
  const V a = *re, b = *im;
  if constexpr (k == 0) {
  } else if constexpr (k == 4) {
    *re = b, *im = Sub(Zero(), a);
  } else if constexpr (k == 2) {
    *re = Mul(kRoot, Add(a, b)), *im = Mul(kRoot, Sub(b, a));
  } else if constexpr (k == 6) {
    *re = Mul(kRoot, Sub(b, a)), *im = Mul(-kRoot, Add(a, b));
  } else {
    static_assert(k == 1 || k == 3 || k == 9);
    constexpr float c = k == 1   ? kCos1
                        : k == 3 ? kSin1
                                 : -kCos1,
                    s = k == 1   ? kSin1
                        : k == 3 ? kCos1
                                 : -kSin1;
    *re = MulAdd(c, a, Mul(s, b)), *im = MulSub(s, a, Mul(c, b));
  }
}

// X[k] = sum over n < 4 of x[n] exp(-2 pi i k n / 4), in place.
MG_INLINE void Four(V& re0, V& im0, V& re1, V& im1, V& re2, V& im2, V& re3, V& im3) {
  const V sr = Add(re0, re2), si = Add(im0, im2), dr = Sub(re0, re2), di = Sub(im0, im2);
  const V tr = Add(re1, re3), ti = Add(im1, im3), er = Sub(re1, re3), ei = Sub(im1, im3);
  re0 = Add(sr, tr), im0 = Add(si, ti);
  re1 = Add(dr, ei), im1 = Sub(di, er);
  re2 = Sub(sr, tr), im2 = Sub(si, ti);
  re3 = Sub(dr, ei), im3 = Add(di, er);
}

// X[k] = sum over n < 16 of x[n] exp(-2 pi i k n / 16), in place. With re and im exchanged: the sum
// with exp(+2 pi i k n / 16).
MG_INLINE void Complex16(V* re, V* im) {
  Repeat<4>([&](auto n) __attribute__((always_inline)) {
    Four(re[n], im[n], re[n + 4], im[n + 4], re[n + 8], im[n + 8], re[n + 12], im[n + 12]);
    Repeat<4>([&](auto k) __attribute__((always_inline)) {
      Turn<n.value * k.value>(re + n + 4 * k, im + n + 4 * k);
    });
  });
  V out_re[kN], out_im[kN];
  Repeat<4>([&](auto k) __attribute__((always_inline)) {
    V *r = re + 4 * k, *i = im + 4 * k;
    Four(r[0], i[0], r[1], i[1], r[2], i[2], r[3], i[3]);
    Repeat<4>([&](auto m) __attribute__((always_inline)) {
      out_re[k + 4 * m] = r[m], out_im[k + 4 * m] = i[m];
    });
  });
  Repeat<kN>([&](auto k) __attribute__((always_inline)) { re[k] = out_re[k], im[k] = out_im[k]; });
}

// The transform of n real values has n real numbers, kept as X[0], X[n/2], then real and imaginary
// parts of X[1] .. X[n/2 - 1].
MG_INLINE void Real4(V x0, V x1, V x2, V x3, V* to) {
  const V even = Add(x0, x2), odd = Add(x1, x3);
  to[0] = Add(even, odd), to[1] = Sub(even, odd);
  to[2] = Sub(x0, x2), to[3] = Sub(x3, x1);
}

// From the transforms of the values at even and at odd places: X[k] = E[k] + exp(-2 pi i k / n)
// O[k], and X[n/2 - k] is the conjugate of E[k] minus that.
MG_INLINE void Real8(const V* x, int step, V* to) {
  V e[4], o[4];
  Real4(x[0], x[2 * step], x[4 * step], x[6 * step], e);
  Real4(x[step], x[3 * step], x[5 * step], x[7 * step], o);
  to[0] = Add(e[0], o[0]), to[1] = Sub(e[0], o[0]);
  Turn<2>(&o[2], &o[3]);
  to[2] = Add(e[2], o[2]), to[3] = Add(e[3], o[3]);
  to[4] = e[1], to[5] = Sub(Zero(), o[1]);
  to[6] = Sub(e[2], o[2]), to[7] = Sub(o[3], e[3]);
}

MG_INLINE void Real16(const V* x, V* to) {
  V e[8], o[8];
  Real8(x, 2, e);
  Real8(x + 1, 2, o);
  to[0] = Add(e[0], o[0]), to[1] = Sub(e[0], o[0]);
  Repeat<3>([&](auto i) __attribute__((always_inline)) {
    constexpr int k = i.value + 1;
    Turn<k>(&o[2 * k], &o[2 * k + 1]);
    to[2 * k] = Add(e[2 * k], o[2 * k]), to[2 * k + 1] = Add(e[2 * k + 1], o[2 * k + 1]);
    to[16 - 2 * k] = Sub(e[2 * k], o[2 * k]);
    to[17 - 2 * k] = Sub(o[2 * k + 1], e[2 * k + 1]);
  });
  to[8] = e[1], to[9] = Sub(Zero(), o[1]);
}

// The way back, without the factor 1/n: x[n] = sum over k of X[k] exp(+2 pi i k n / 16).
MG_INLINE void RealBack4(const V* from, V* x0, V* x1, V* x2, V* x3) {
  const V even = Add(from[0], from[1]), odd = Sub(from[0], from[1]);
  *x0 = MulAdd(2, from[2], even), *x2 = MulSub(2, from[2], even);
  *x1 = MulSub(2, from[3], odd), *x3 = MulAdd(2, from[3], odd);
}

// (re, im) *= exp(+2 pi i k / 16).
template <int k>
MG_INLINE void TurnBack(V* re, V* im) {
  Turn<k>(im, re);
}

MG_INLINE void RealBack8(const V* from, V* x, int step) {
  V e[4], o[4];
  e[0] = Add(from[0], from[1]), o[0] = Sub(from[0], from[1]);
  e[2] = Add(from[2], from[6]), e[3] = Sub(from[3], from[7]);
  o[2] = Sub(from[2], from[6]), o[3] = Add(from[3], from[7]);
  TurnBack<2>(&o[2], &o[3]);
  e[1] = Add(from[4], from[4]), o[1] = Mul(-2, from[5]);
  RealBack4(e, x, x + 2 * step, x + 4 * step, x + 6 * step);
  RealBack4(o, x + step, x + 3 * step, x + 5 * step, x + 7 * step);
}

MG_INLINE void RealBack16(const V* from, V* x) {
  V e[8], o[8];
  e[0] = Add(from[0], from[1]), o[0] = Sub(from[0], from[1]);
  Repeat<3>([&](auto i) __attribute__((always_inline)) {
    constexpr int k = i.value + 1;
    const V re = from[2 * k], im = from[2 * k + 1], re8 = from[16 - 2 * k], im8 = from[17 - 2 * k];
    e[2 * k] = Add(re, re8), e[2 * k + 1] = Sub(im, im8);
    o[2 * k] = Sub(re, re8), o[2 * k + 1] = Add(im, im8);
    TurnBack<k>(&o[2 * k], &o[2 * k + 1]);
  });
  e[1] = Add(from[8], from[8]), o[1] = Mul(-2, from[9]);
  RealBack8(e, x, 2);
  RealBack8(o, x + 1, 2);
}

// ---- transforms of 16 x 16 values
// --------------------------------------------------------------------------------

// Where the numbers of column `kx` (0: of 0, 1: of 8; of real columns) begin, in planes.
MG_INLINE int64_t FirstOfReal(int column) { return 2 * (7 * 16 + 7 * column); }
MG_INLINE int64_t FirstOfComplex(int kx) { return 2 * 16 * (kx - 1); }

// load(y, x) is a value, and zero unless in(y); to plane p: store(p, value).
template <typename In, typename Get, typename Put>
MG_INLINE void Forward(const In& in, const Get& load, const Put& store) {
  V rows[kN][kN];
  for (int y = 0; y < kN; ++y) {
    if (!in(y)) {
      Repeat<kN>([&](auto k) __attribute__((always_inline)) { rows[y][k] = Zero(); });
      continue;
    }
    V x[kN];
    Repeat<kN>([&](auto k) __attribute__((always_inline)) { x[k] = load(y, k); });
    Real16(x, rows[y]);
  }
  for (int kx = 1; kx < kN / 2; ++kx) {
    V re[kN], im[kN];
    Repeat<kN>([&](auto y) __attribute__((always_inline)) {
      re[y] = rows[y][2 * kx], im[y] = rows[y][2 * kx + 1];
    });
    Complex16(re, im);
    const int64_t first = FirstOfComplex(kx);
    Repeat<kN>([&](auto k) __attribute__((always_inline)) {
      store(first + 2 * k, re[k]), store(first + 2 * k + 1, im[k]);
    });
  }
  for (int column = 0; column < 2; ++column) {
    V x[kN], out[kN];
    Repeat<kN>([&](auto y) __attribute__((always_inline)) { x[y] = rows[y][column]; });
    Real16(x, out);
    const int64_t first = FirstOfReal(column);
    Repeat<kN - 2>([&](auto k) __attribute__((always_inline)) { store(first + k, out[k + 2]); });
    store(2 * kComplexPoints + 2 * column, out[0]);
    store(2 * kComplexPoints + 2 * column + 1, out[1]);
  }
}

// load(p) is plane p; store(y, x, value) of those rows that are wanted.
template <typename In, typename Get, typename Put>
MG_INLINE void Backward(const In& wanted, const Get& load, const Put& store) {
  V rows[kN][kN];
  for (int kx = 1; kx < kN / 2; ++kx) {
    V re[kN], im[kN];
    const int64_t first = FirstOfComplex(kx);
    Repeat<kN>([&](auto k) __attribute__((always_inline)) {
      re[k] = load(first + 2 * k), im[k] = load(first + 2 * k + 1);
    });
    Complex16(im, re);
    Repeat<kN>([&](auto y) __attribute__((always_inline)) {
      rows[y][2 * kx] = re[y], rows[y][2 * kx + 1] = im[y];
    });
  }
  for (int column = 0; column < 2; ++column) {
    V from[kN], x[kN];
    const int64_t first = FirstOfReal(column);
    from[0] = load(2 * kComplexPoints + 2 * column);
    from[1] = load(2 * kComplexPoints + 2 * column + 1);
    Repeat<kN - 2>([&](auto k) __attribute__((always_inline)) { from[k + 2] = load(first + k); });
    RealBack16(from, x);
    Repeat<kN>([&](auto y) __attribute__((always_inline)) { rows[y][column] = x[y]; });
  }
  for (int y = 0; y < kN; ++y) {
    if (!wanted(y)) continue;
    V x[kN];
    RealBack16(rows[y], x);
    Repeat<kN>([&](auto k) __attribute__((always_inline)) { store(y, k, x[k]); });
  }
}

// ---- products
// ------------------------------------------------------------------------------------------------------

template <int kRows, int kVectors>
void Block(const ComplexProduct& p, int64_t row, int64_t column) {
  const float *a = p.a + row * p.a_row, *b = p.b + column;
  float* c = p.c + row * p.c_row + column;
  V re[kRows][kVectors], im[kRows][kVectors];
  Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
      re[i][j] = p.accumulate ? Load(c + i * p.c_row + j * kLanes) : Zero();
      im[i][j] = p.accumulate ? Load(c + p.c_imaginary + i * p.c_row + j * kLanes) : Zero();
    });
  });
  const int64_t a_row = p.a_row, a_step = p.a_step, b_step = p.b_step;
  const float *ai = a + p.a_imaginary, *bi = b + p.b_imaginary;
  const auto add = [&](auto i, auto j, V x, V y, V u, V w) __attribute__((always_inline)) {
    re[i][j] = _mm512_fmadd_ps(x, u, re[i][j]);
    im[i][j] = _mm512_fmadd_ps(y, u, im[i][j]);
    re[i][j] = _mm512_fmadd_ps(y, w, re[i][j]);
    im[i][j] = _mm512_fnmadd_ps(x, w, im[i][j]);
  };
  for (int64_t k = 0; k < p.depth; ++k, a += a_step, ai += a_step, b += b_step, bi += b_step) {
    if constexpr (kVectors == 4) {
      V x[kRows], y[kRows];
      Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
        x[i] = Set(a[i * a_row]), y[i] = Set(ai[i * a_row]);
      });
      Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
        const V u = Load(b + j * kLanes), w = Load(bi + j * kLanes);
        Repeat<kRows>([&](auto i) __attribute__((always_inline)) { add(i, j, x[i], y[i], u, w); });
      });
    } else {
      V u[kVectors], w[kVectors];
      Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
        u[j] = Load(b + j * kLanes), w[j] = Load(bi + j * kLanes);
      });
      Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
        const V x = Set(a[i * a_row]), y = Set(ai[i * a_row]);
        Repeat<kVectors>([&](auto j)
                             __attribute__((always_inline)) { add(i, j, x, y, u[j], w[j]); });
      });
    }
  }
  Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
      Store(c + i * p.c_row + j * kLanes, re[i][j]);
      Store(c + p.c_imaginary + i * p.c_row + j * kLanes, im[i][j]);
    });
  });
}

template <int kVectors>
void Columns(const ComplexProduct& p, int64_t column) {
  // Two sums each; beside them, of 32 registers, what an inner loop holds of a and b.
  constexpr int kMost = 12 / kVectors;
  using Fn = void (*)(const ComplexProduct&, int64_t, int64_t);
  static constexpr auto kBlocks = []<int... kI>(std::integer_sequence<int, kI...>) {
    struct Table {
      Fn of[kMost];
    };
    return Table{{&Block<kI + 1, kVectors>...}};
  }
  (std::make_integer_sequence<int, kMost>());
  const int64_t blocks = (p.rows + kMost - 1) / kMost;
  for (int64_t i = 0, row = 0; i < blocks; ++i) {
    const int64_t end = p.rows * (i + 1) / blocks;
    kBlocks.of[end - row - 1](p, row, column);
    row = end;
  }
}

}  // namespace

void MultiplyByConjugate(const ComplexProduct& p) {
  for (int64_t column = 0; column < p.columns;) {
    switch ((p.columns - column) / kLanes) {
      case 1:
        Columns<1>(p, column);
        column += 1 * kLanes;
        break;
      case 2:
        Columns<2>(p, column);
        column += 2 * kLanes;
        break;
      case 3:
        Columns<3>(p, column);
        column += 3 * kLanes;
        break;
      default:
        Columns<4>(p, column);
        column += 4 * kLanes;
    }
  }
}

void ToFourier(const Image& shape, const float* image, float* planes, int64_t stride) {
  for (int64_t c = 0; c < shape.channels; c += kLanes) {
    const float* const from = image + c;
    float* const to = planes + c;
    Forward(
        [&](int y) __attribute__((always_inline)) { return y < shape.height; },
        [&](int y, int x) __attribute__((always_inline)) {
          return x < shape.width ? Load(from + (y * shape.width + x) * shape.channels) : Zero();
        },
        [&](int64_t p, V value) __attribute__((always_inline)) { Store(to + p * stride, value); });
  }
}

bool FromFourier(const float* planes, int64_t stride, float scale, const float* bias, bool relu,
                 const Image& shape, float* image) {
  FiniteCheck finite;
  for (int64_t c = 0; c < shape.channels; c += kLanes) {
    const float* const from = planes + c;
    float* const to = image + c;
    const V add = bias == nullptr ? Zero() : Load(bias + c);
    Backward(
        [&](int y) __attribute__((always_inline)) { return y < shape.height; },
        [&](int64_t p) __attribute__((always_inline)) { return Load(from + p * stride); },
        [&](int y, int x, V value) __attribute__((always_inline)) {
          if (x >= shape.width) return;
          value = MulAdd(scale, value, add);
          finite.Look(value);
          Store(to + (y * shape.width + x) * shape.channels, relu ? Relu(value) : value);
        });
  }
  return finite.ok();
}

void FilterToFourier(const Filter& shape, const float* filter, bool conjugate, int64_t count,
                     float* planes) {
  for (int64_t n = 0; n < count; n += kLanes) {
    Forward(
        [&](int y) __attribute__((always_inline)) {
          return ((y + shape.before_rows) & (kN - 1)) < shape.rows;
        },
        [&](int y, int x) __attribute__((always_inline)) {
          const int64_t r = (y + shape.before_rows) & (kN - 1),
                        s = (x + shape.before_columns) & (kN - 1);
          return s < shape.columns ? Load(filter + (r * shape.columns + s) * count + n) : Zero();
        },
        [&](int64_t p, V value) __attribute__((always_inline)) {
          const bool negate = conjugate && p < 2 * kComplexPoints && p % 2 == 1;
          Store(planes + p * count + n, negate ? Sub(Zero(), value) : value);
        });
  }
}

bool FilterFromFourier(const Filter& shape, const float* planes, float scale, int64_t count,
                       float* filter) {
  FiniteCheck finite;
  for (int64_t n = 0; n < count; n += kLanes) {
    Backward(
        [&](int y) __attribute__((always_inline)) {
          return ((y + shape.before_rows) & (kN - 1)) < shape.rows;
        },
        [&](int64_t p) __attribute__((always_inline)) { return Load(planes + p * count + n); },
        [&](int y, int x, V value) __attribute__((always_inline)) {
          const int64_t r = (y + shape.before_rows) & (kN - 1),
                        s = (x + shape.before_columns) & (kN - 1);
          if (s >= shape.columns) return;
          value = Mul(scale, value);
          finite.Look(value);
          Store(filter + (r * shape.columns + s) * count + n, value);
        });
  }
  return finite.ok();
}

}  // namespace monograph::ops::avx512
