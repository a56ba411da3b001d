// Reductions on a GPU in an order that shapes alone fix: the same bits in every run, on every GPU,
// for every alignment. No atomics.
//
// Rows: [rows, n] -> [rows]. A row, or a chunk of a long one, belongs to 1 to 256 lanes (threads).
// A lane takes packs of kPack consecutive elements, `lanes` packs apart, into kPack sums; these,
// and then the lanes, are combined in pairs. Chunks of a row are combined as a row of their own.
// Columns: [groups, rows, columns] -> [groups, columns]. 32 columns and 8 lanes of rows to a block;
// chunks of rows as above.
#pragma once

#include <algorithm>
#include <cstdint>

#include "executor/kernel.h"
#include "ops/gpu/launch.h"

namespace monograph::ops::reduce {

// Where elements come from and results go: the tensor's type, or the type of partial results.
template <typename T, typename A>
struct ReduceData {
  const void* in;
  void* out;
  bool in_partial, out_partial;
  A divisor;  // of the results; 1: none

  MG_HD A Load(int64_t i) const {
    if (in_partial) return static_cast<const A*>(in)[i];
    return static_cast<A>(Widen(static_cast<const T*>(in)[i]));
  }
  MG_HD void Store(int64_t i, A value) const {
    if (out_partial) {
      static_cast<A*>(out)[i] = value;
      return;
    }
    if constexpr (!std::is_same_v<A, bool>) {
      if (divisor != A(1)) value = value / divisor;
    }
    static_cast<T*>(out)[i] = Narrow<T>(static_cast<Accumulator<T>>(value));
  }
};

// kSquare: of the squares of the elements.
template <typename T, typename A, typename Op, bool kSquare>
struct RowsBody {
  static constexpr int kThreads = 256, kPhases = 9;
  static constexpr int kPack = sizeof(T) < 2 ? 8 : 16 / static_cast<int>(sizeof(T));
  struct Shared {
    A values[kThreads];
  };

  ReduceData<T, A> data;
  int64_t rows, n;
  int lanes;       // a power of two
  int64_t chunk;   // elements
  Divisor chunks;  // of a row
  bool packs;      // whole packs of T are aligned and lie in one row

  MG_HD A Element(A x) const { return kSquare && !data.in_partial ? A(x * x) : x; }

  MG_HD A Lane(int64_t row, int64_t begin, int64_t end, int lane) const {
    A sums[kPack];
    MG_UNROLL
    for (int k = 0; k < kPack; ++k) sums[k] = Op::Zero();
    const int64_t step = static_cast<int64_t>(lanes) * kPack, base = row * n;
    int64_t i = begin + static_cast<int64_t>(lane) * kPack;
    if (packs) {
      const T* from = static_cast<const T*>(data.in) + base;
      MG_UNROLL_BY(4)
      for (; i + kPack <= end; i += step) {
        const auto pack = *reinterpret_cast<const ElementPack<T, kPack>*>(from + i);
        MG_UNROLL
        for (int k = 0; k < kPack; ++k)
          sums[k] = Op::Combine(sums[k], Element(static_cast<A>(Widen(pack.values[k]))));
      }
    }
    for (; i < end; i += step) {
      MG_UNROLL
      for (int k = 0; k < kPack; ++k) {
        if (i + k < end) sums[k] = Op::Combine(sums[k], Element(data.Load(base + i + k)));
      }
    }
    MG_UNROLL
    for (int width = kPack / 2; width > 0; width /= 2) {
      MG_UNROLL
      for (int k = 0; k < width; ++k) sums[k] = Op::Combine(sums[k], sums[k + width]);
    }
    return sums[0];
  }

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int lane = thread & (lanes - 1);
    const int64_t group = chunks.Divide(block), which = block - group * chunks.divisor();
    const int64_t row = group * (kThreads / lanes) + thread / lanes;
    if (phase == 0) {
      if (row >= rows) return;
      const int64_t begin = which * chunk, end = begin + chunk < n ? begin + chunk : n;
      shared.values[thread] = Lane(row, begin, end, lane);
      return;
    }
    const int width = kThreads >> phase;
    if (row >= rows) return;
    if (width < lanes && lane < width)
      shared.values[thread] = Op::Combine(shared.values[thread], shared.values[thread + width]);
    if (phase == kPhases - 1 && lane == 0)
      data.Store(row * chunks.divisor() + which, shared.values[thread]);
  }
};

template <typename T, typename A, typename Op>
struct ColumnsBody {
  static constexpr int kWidth = 32, kLanes = 8, kThreads = kWidth * kLanes, kPhases = 4;
  struct Shared {
    A values[kThreads];
  };

  ReduceData<T, A> data;
  int64_t rows, columns;
  int64_t chunk;  // rows
  Divisor chunks, blocks_across;

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int64_t rest = blocks_across.Divide(block);
    const int64_t column = (block - rest * blocks_across.divisor()) * kWidth + thread % kWidth;
    const int64_t group = chunks.Divide(rest), which = rest - group * chunks.divisor();
    const int lane = thread / kWidth;
    if (column >= columns) return;
    if (phase == 0) {
      const int64_t begin = which * chunk, end = begin + chunk < rows ? begin + chunk : rows;
      A sum = Op::Zero();
      MG_UNROLL_BY(8)
      for (int64_t r = begin + lane; r < end; r += kLanes)
        sum = Op::Combine(sum, data.Load((group * rows + r) * columns + column));
      shared.values[thread] = sum;
      return;
    }
    const int width = kLanes >> phase;
    if (lane < width)
      shared.values[thread] =
          Op::Combine(shared.values[thread], shared.values[thread + width * kWidth]);
    if (phase == kPhases - 1 && lane == 0)
      data.Store(rest * columns + column, shared.values[thread]);
  }
};

inline constexpr int64_t kWantedBlocks = 1024;  // about what fills a large GPU

template <typename T, typename A, typename Op, bool kSquare = false>
Status ReduceRows(KernelContext& c, const ReduceData<T, A>& data, int64_t rows, int64_t n) {
  using Body = RowsBody<T, A, Op, kSquare>;
  constexpr int64_t kPack = Body::kPack, kThreads = Body::kThreads;
  Body body{data, rows, n, 1, n, Divisor(1), false};
  while (body.lanes < kThreads && body.lanes * kPack * 2 <= n) body.lanes *= 2;
  const int64_t pack_bytes = kPack * static_cast<int64_t>(sizeof(T));
  body.packs = !data.in_partial && n % kPack == 0 &&
               reinterpret_cast<uintptr_t>(data.in) % static_cast<uintptr_t>(pack_bytes) == 0;
  const int64_t groups = (rows * body.lanes + kThreads - 1) / kThreads;
  constexpr int64_t kLeast = kThreads * kPack * 4;  // elements of a chunk
  const int64_t chunks =
      std::clamp<int64_t>(n / kLeast, 1, std::max<int64_t>(1, kWantedBlocks / groups));
  if (chunks == 1) return ForBlocks(c, groups, body);
  body.chunk = ((n + chunks - 1) / chunks + kPack - 1) / kPack * kPack;
  body.chunks = Divisor((n + body.chunk - 1) / body.chunk);
  const int64_t parts = body.chunks.divisor();
  MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(kDTypeOf<A>, Shape{rows * parts}));
  body.data.out = partial.raw();
  body.data.out_partial = true;
  MG_RETURN_IF_ERROR(ForBlocks(c, groups * parts, body));
  ReduceData<T, A> rest = data;
  rest.in = partial.raw();
  rest.in_partial = true;
  return ReduceRows<T, A, Op, kSquare>(c, rest, rows, parts);
}

template <typename T, typename A, typename Op>
Status ReduceColumns(KernelContext& c, const ReduceData<T, A>& data, int64_t groups, int64_t rows,
                     int64_t columns) {
  using Body = ColumnsBody<T, A, Op>;
  const int64_t across = (columns + Body::kWidth - 1) / Body::kWidth;
  constexpr int64_t kLeast = 16 * Body::kLanes;  // rows of a chunk
  const int64_t chunks = std::clamp<int64_t>(
      rows / kLeast, 1, std::max<int64_t>(1, kWantedBlocks / (groups * across)));
  Body body{data, rows, columns, (rows + chunks - 1) / chunks, Divisor(1), Divisor(across)};
  const int64_t parts = (rows + body.chunk - 1) / body.chunk;
  body.chunks = Divisor(parts);
  if (parts == 1) return ForBlocks(c, groups * across, body);
  MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(kDTypeOf<A>, Shape{groups * parts, columns}));
  body.data.out = partial.raw();
  body.data.out_partial = true;
  MG_RETURN_IF_ERROR(ForBlocks(c, groups * parts * across, body));
  ReduceData<T, A> rest = data;
  rest.in = partial.raw();
  rest.in_partial = true;
  return ReduceColumns<T, A, Op>(c, rest, groups, parts, columns);
}

}  // namespace monograph::ops::reduce
