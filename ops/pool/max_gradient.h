// The gradient of max pooling by plain loops over channels, which the compiler turns into vector
// code: for the kernels of a CPU.
//
// There is no record of where each maximum was: the loops look for the first element of a window
// that equals the window's output. Where windows tile the image, each element of the result is
// written once, so there is neither a clearing pass nor a read-modify-write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/independent_loop.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/pool/geometry.h"

namespace monograph::ops::pool {

// Calls fn with a constant 1 where channels are adjacent, else with their stride: loops over
// channels then vectorise in the usual case.
template <typename Fn>
void WithChannelStride(int64_t stride, const Fn& fn) {
  if (stride == 1) {
    fn(std::integral_constant<int64_t, 1>());
  } else {
    fn(stride);
  }
}

template <typename T>
class MaxGradient {
 public:
  // All pointers are at the first of `images` images: x and dx of the image, y and dy of what was
  // pooled. With `looks` large windows end early once the step is aborted.
  static void Run(const Geometry& g, int64_t images, const T* x, const T* y, const T* dy, T* dx,
                  Looks* looks = nullptr) {
    const bool tiles = g.tiles();
    WithChannelStride(g.image.sc, [&](auto sc) {
      for (int64_t n = 0; n < images; ++n) {
        const T* image = x + n * g.image.sn;
        T* to = dx + n * g.image.sn;
        if (!tiles)
          std::memset(static_cast<void*>(to), 0, static_cast<size_t>(g.image.sn) * sizeof(T));
        for (int64_t oh = 0; oh < g.rows.out; ++oh) {
          const Inside rows(g.rows, oh);
          for (int64_t ow = 0; ow < g.columns.out; ++ow) {
            const int64_t at = n * g.pooled.sn + oh * g.pooled.sh + ow * g.pooled.sw;
            const Inside columns(g.columns, ow);
            if (tiles && rows.size() == 2 && columns.size() == 2) {
              const int64_t first = rows.begin * g.image.sh + columns.begin * g.image.sw;
              Square(g, image + first, y + at, dy + at, to + first, sc);
            } else {
              const int64_t work = 1 + rows.size() * columns.size() * g.image.c;
              if (looks != nullptr && !looks->GoOn(work)) return;
              General(g, tiles, image, rows, columns, y + at, dy + at, to, sc);
            }
          }
        }
      }
    });
  }

 private:
  // A 2x2 window of its own.
  template <typename Stride>
  static void Square(const Geometry& g, const T* x, const T* y, const T* dy, T* __restrict to,
                     Stride sc) {
    const int64_t out_sc = sc == 1 ? 1 : g.pooled.sc, channels = g.image.c, right = g.image.sw,
                  down = g.image.sh;
    const T *xa = x, *xb = x + right, *xc = x + down, *xd = x + down + right;
    T *ta = to, *tb = to + right, *tc = to + down, *td = to + down + right;
    // The four are apart from each other.
    MG_INDEPENDENT_LOOP
    for (int64_t k = 0; k < channels; ++k) {
      const int64_t o = sc == 1 ? k : k * out_sc, i = k * sc;
      if constexpr (std::is_same_v<T, bfloat16>) {
        const uint16_t top = y[o].bits, gradient = dy[o].bits;
        const uint16_t a = Same(xa[i].bits, top), b = ~a & Same(xb[i].bits, top),
                       d = ~(a | b) & Same(xc[i].bits, top),
                       e = ~(a | b | d) & Same(xd[i].bits, top);
        ta[i].bits = a & gradient;
        tb[i].bits = b & gradient;
        tc[i].bits = d & gradient;
        td[i].bits = e & gradient;
        continue;
      }
      const T top = y[o], gradient = dy[o];
      const bool a = xa[i] == top, b = !a & (xb[i] == top), d = !(a | b) & (xc[i] == top),
                 e = !(a | b | d) & (xd[i] == top);
      ta[i] = a ? gradient : T(0);
      tb[i] = b ? gradient : T(0);
      tc[i] = d ? gradient : T(0);
      td[i] = e ? gradient : T(0);
    }
  }

  // All ones if the values of bfloat16 are equal: the same bits of a number, or two zeros. In 16
  // bits throughout, so that vectors hold twice as many as of floats.
  static uint16_t Same(uint16_t a, uint16_t b) {
    constexpr uint16_t kInfinity = 0x7f80, kMagnitude = 0x7fff;
    const bool number = (a & kMagnitude) <= kInfinity, zeros = ((a | b) & kMagnitude) == 0;
    return static_cast<uint16_t>(-static_cast<int>((number & (a == b)) | zeros));
  }

  template <typename Stride>
  static void General(const Geometry& g, bool alone, const T* image, const Inside& rows,
                      const Inside& columns, const T* y, const T* dy, T* __restrict to, Stride sc) {
    constexpr int64_t kLanes = 64;
    const int64_t out_sc = sc == 1 ? 1 : g.pooled.sc;
    for (int64_t first = 0; first < g.image.c; first += kLanes) {
      const int64_t lanes = std::min(kLanes, g.image.c - first);
      // All ones where the maximum has not come yet: in as many bits as an element of bfloat16 has,
      // so that the loop is one of vectors.
      using Open = std::conditional_t<std::is_same_v<T, bfloat16>, uint16_t, bool>;
      Open open[kLanes];
      std::fill_n(open, kLanes, static_cast<Open>(-1));
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        for (int64_t w = columns.begin; w < columns.end; ++w) {
          const int64_t at = h * g.image.sh + w * g.image.sw + first * sc;
          MG_INDEPENDENT_LOOP
          for (int64_t k = 0; k < lanes; ++k) {
            const int64_t o = (first + k) * out_sc;
            if constexpr (std::is_same_v<T, bfloat16>) {
              const uint16_t hit = open[k] & Same(image[at + k * sc].bits, y[o].bits);
              open[k] = open[k] & ~hit;
              bfloat16 add;
              add.bits = hit & dy[o].bits;
              to[at + k * sc] = alone ? add : bfloat16(to[at + k * sc] + add);
              continue;
            }
            const bool hit = open[k] & (image[at + k * sc] == y[o]);
            const T add = hit ? dy[o] : T(0);
            open[k] = open[k] & !hit;
            to[at + k * sc] = alone ? add : T(to[at + k * sc] + add);
          }
        }
      }
    }
  }
};

}  // namespace monograph::ops::pool
