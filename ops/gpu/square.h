// Square: how a block of 256 threads turns a part of a matrix round. Rows of the source are read
// into shared memory, its columns are written as rows of the result: both 16 bytes at a time where
// addresses allow it, so that a warp touches whole lines on either side.
//
//   using Shared = Square<float>;
//   if (phase == 0) shared.Read(from, pitch, rows, columns, packs, thread);
//   else            shared.Write(to, pitch, rows, columns, packs, thread, convert);
#pragma once

#include <cstdint>

#include "ops/gpu/vectors.h"

namespace monograph::ops {

template <typename W>
struct Square {
  static constexpr int kSide = 64, kThreads = 256;
  W at[kSide][kSide + 1];  // with this pitch a column's words lie in different banks

  // The first kSide of `rows` rows of `columns` words, `pitch` words apart. REQUIRES, if `packs`:
  // the address is aligned for 16 bytes, and kWidth<W> divides pitch and columns.
  MG_HD void Read(const W* from, int64_t pitch, int64_t rows, int64_t columns, bool packs,
                  int thread) {
    if (packs) {
      constexpr int kPack = kWidth<W>, kAcross = kSide / kPack;
      MG_UNROLL
      for (int k = 0; k < kSide * kAcross / kThreads; ++k) {
        const int i = k * kThreads + thread;
        const int r = i / kAcross, c = i % kAcross * kPack;
        if (r >= rows || c >= columns) continue;
        const auto pack = LoadPack<W, kPack>(from + r * pitch + c);
        MG_UNROLL
        for (int v = 0; v < kPack; ++v) at[r][c + v] = pack.values[v];
      }
      return;
    }
    MG_UNROLL_BY(4)
    for (int k = 0; k < kSide * kSide / kThreads; ++k) {
      const int i = k * kThreads + thread;
      const int r = i / kSide, c = i % kSide;
      if (r < rows && c < columns) at[r][c] = from[r * pitch + c];
    }
  }

  // What was read, turned: `columns` rows of `rows` elements convert(W), `pitch` elements apart.
  // REQUIRES, if `packs`: the address is aligned for 16 bytes, and kWidth<To> divides pitch and
  // rows.
  template <typename To, typename Convert>
  MG_HD void Write(To* to, int64_t pitch, int64_t rows, int64_t columns, bool packs, int thread,
                   const Convert& convert) const {
    if (packs) {
      constexpr int kPack = kWidth<To>, kDown = kSide / kPack;
      MG_UNROLL
      for (int k = 0; k < kSide * kDown / kThreads; ++k) {
        const int i = k * kThreads + thread;
        const int c = i / kDown, r = i % kDown * kPack;
        if (c >= columns || r >= rows) continue;
        ElementPack<To, kPack> pack;
        MG_UNROLL
        for (int v = 0; v < kPack; ++v) pack.values[v] = convert(at[r + v][c]);
        StorePack<To, kPack>(to + c * pitch + r, pack);
      }
      return;
    }
    MG_UNROLL_BY(4)
    for (int k = 0; k < kSide * kSide / kThreads; ++k) {
      const int i = k * kThreads + thread;
      const int c = i / kSide, r = i % kSide;
      if (c < columns && r < rows) to[c * pitch + r] = convert(at[r][c]);
    }
  }
};

}  // namespace monograph::ops
