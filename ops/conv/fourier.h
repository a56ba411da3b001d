// Discrete Fourier transforms of N x N images of real numbers, for a vector of channels at once.
//
// Two images, A and B, are the real and the imaginary part of one complex image Z, so that
// A(k) = (Z(k) + conj Z(-k)) / 2 and B(k) = (Z(k) - conj Z(-k)) / 2i. Of the frequencies k = (x, y)
// only those are kept that are no other's conjugate: x = 0 and x = N/2 with y = 0 .. N/2, and
// 0 < x < N/2 with every y. The one-dimensional transform is Cooley and Tukey's (An Algorithm for
// the Machine Calculation of Complex Fourier Series, 1965), in steps of four.
#pragma once

#include <cstdint>
#include <utility>

namespace monograph::ops::conv::fourier {

// Channels of a vector: such vectors are arguments on every processor that the code is for.
#if defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
#define MG_INLINE __attribute__((always_inline))

constexpr int64_t Frequencies(int64_t n) { return n * n / 2 + 2; }
constexpr int FrequenciesOf(int column, int n) { return column % (n / 2) == 0 ? n / 2 + 1 : n; }

// What an image covers of a period of N pixels: `count` from `first` on, those beyond N at 0.
struct Extent {
  int first, count;
};

// cos(2 pi k / 32).
constexpr float Cosine(int k) {
  constexpr float kQuarter[] = {1.f,         .980785280f, .923879533f, .831469612f, .707106781f,
                                .555570233f, .382683432f, .195090322f, 0.f};
  k %= 32;
  if (k > 16) k = 32 - k;
  return k <= 8 ? kQuarter[k] : -kQuarter[16 - k];
}
constexpr float Sine(int k) { return Cosine(k + 24); }

template <int kCount, typename Fn>
MG_INLINE inline void Repeat(const Fn& fn) {
  [&]<int... k>(std::integer_sequence<int, k...>) MG_INLINE {
    (fn(std::integral_constant<int, k>()), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

// (re, im) exp(-2 pi i k / 32).
template <int k>
MG_INLINE inline void Turn(Lanes* re, Lanes* im) {
  const Lanes a = *re, b = *im;
  if constexpr (k == 8) {
    *re = b, *im = -a;
  } else if constexpr (k != 0) {
    constexpr float kCos = Cosine(k), kSin = Sine(k);
    *re = kCos * a + kSin * b, *im = kCos * b - kSin * a;
  }
}

// to[k] = sum over n < N of from[n * step] exp(-2 pi i k n / N). With real and imaginary parts
// exchanged, of both: the inverse, times N.
template <int N>
MG_INLINE inline void Line(const Lanes* re, const Lanes* im, int step, Lanes* to_re, Lanes* to_im) {
  if constexpr (N == 1) {
    *to_re = *re, *to_im = *im;
  } else if constexpr (N == 2) {
    to_re[0] = re[0] + re[step], to_im[0] = im[0] + im[step];
    to_re[1] = re[0] - re[step], to_im[1] = im[0] - im[step];
  } else {
    constexpr int kPart = N / 4;
    Repeat<4>([&](auto j) MG_INLINE {
      Line<kPart>(re + j * step, im + j * step, 4 * step, to_re + j * kPart, to_im + j * kPart);
    });
    Repeat<kPart>([&](auto k) MG_INLINE {
      Lanes r[4], i[4];
      Repeat<4>([&](auto j) MG_INLINE {
        r[j] = to_re[k + j * kPart], i[j] = to_im[k + j * kPart];
        Turn<j.value * k.value*(32 / N)>(&r[j], &i[j]);
      });
      const Lanes even_r = r[0] + r[2], even_i = i[0] + i[2], odd_r = r[1] + r[3],
                  odd_i = i[1] + i[3];
      const Lanes minus_r = r[0] - r[2], minus_i = i[0] - i[2], turned_r = i[1] - i[3],
                  turned_i = r[3] - r[1];
      Lanes *x = to_re + k, *y = to_im + k;
      x[0] = even_r + odd_r, y[0] = even_i + odd_i;
      x[kPart] = minus_r + turned_r, y[kPart] = minus_i + turned_i;
      x[2 * kPart] = even_r - odd_r, y[2 * kPart] = even_i - odd_i;
      x[3 * kPart] = minus_r - turned_r, y[3 * kPart] = minus_i - turned_i;
    });
  }
}

template <int N>
[[gnu::noinline]] void Transform(const Lanes* re, const Lanes* im, int step, Lanes* to_re,
                                 Lanes* to_im) {
  Line<N>(re, im, step, to_re, to_im);
}

// load(i, j, &a, &b) gives a pixel of both images; put(frequency, re a, im a, re b, im b) takes
// twice the transform.
template <int N, typename Load, typename Put>
void Forward(Extent rows, Extent columns, const Load& load, const Put& put) {
  Lanes re[N][N] = {}, im[N][N] = {};
  for (int i = 0; i < rows.count; ++i) {
    Lanes a[N] = {}, b[N] = {};
    for (int j = 0; j < columns.count; ++j) {
      const int x = (columns.first + j) % N;
      load(i, j, &a[x], &b[x]);
    }
    const int y = (rows.first + i) % N;
    Transform<N>(a, b, 1, re[y], im[y]);
  }
  int frequency = 0;
  for (int x = 0; x <= N / 2; ++x) {
    const int other = (N - x) % N;
    Lanes pr[N], pi[N], qr[N], qi[N];
    Transform<N>(&re[0][x], &im[0][x], N, pr, pi);
    Transform<N>(&re[0][other], &im[0][other], N, qr, qi);
    for (int y = 0; y < FrequenciesOf(x, N); ++y) {
      const int m = (N - y) % N;
      put(frequency++, pr[y] + qr[m], pi[y] - qi[m], pi[y] + qi[m], qr[m] - pr[y]);
    }
  }
}

// The way back, times N * N: get(frequency, &re a, &im a, &re b, &im b), store(i, j, a, b).
template <int N, typename Get, typename Store>
void Backward(Extent rows, Extent columns, const Get& get, const Store& store) {
  Lanes re[N][N], im[N][N];  // [x][y]
  int frequency = 0;
  for (int x = 0; x <= N / 2; ++x) {
    const int other = (N - x) % N;
    Lanes pr[N], pi[N], qr[N], qi[N];
    for (int y = 0; y < FrequenciesOf(x, N); ++y) {
      const int m = (N - y) % N;
      Lanes ar, ai, br, bi;
      get(frequency++, &ar, &ai, &br, &bi);
      pr[y] = ar - bi, pi[y] = ai + br;
      qr[m] = ar + bi, qi[m] = br - ai;
    }
    for (int y = FrequenciesOf(x, N); y < N; ++y) pr[y] = qr[y], pi[y] = qi[y];
    Transform<N>(pi, pr, 1, im[x], re[x]);
    if (other != x) Transform<N>(qi, qr, 1, im[other], re[other]);
  }
  for (int i = 0; i < rows.count; ++i) {
    const int y = (rows.first + i) % N;
    Lanes a[N], b[N];
    Transform<N>(&im[0][y], &re[0][y], N, b, a);
    for (int j = 0; j < columns.count; ++j) {
      const int x = (columns.first + j) % N;
      store(i, j, a[x], b[x]);
    }
  }
}

#undef MG_INLINE

}  // namespace monograph::ops::conv::fourier
