// Moves of elements on a GPU. Elements are words of 1 to 16 bytes: where whole runs of them lie
// together on both sides, several are moved as one wider word.
#include <algorithm>
#include <array>

#include "ops/gpu/launch.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/square.h"

namespace monograph::ops {
namespace {

bool Aligned(const void* pointer, size_t bytes) { return AddressOf(pointer) % bytes == 0; }

// Words of the innermost dimension joined to wider ones, as long as all fits.
size_t Widened(size_t word, const void* from, const void* to, StridedSpace* space) {
  const auto rank = static_cast<size_t>(space->rank), inner = rank - 1;
  while (word < 16 && space->from[inner] == 1 && space->to[inner] == 1 &&
         space->size[inner] % 2 == 0 && Aligned(from, 2 * word) && Aligned(to, 2 * word)) {
    for (size_t i = 0; i < inner; ++i) {
      if (space->from[i] % 2 != 0 || space->to[i] % 2 != 0) return word;
    }
    word *= 2;
    space->size[inner] /= 2;
    for (size_t i = 0; i < inner; ++i) space->from[i] /= 2, space->to[i] /= 2;
  }
  return word;
}

// The dimensions of a space, for indices on the device.
struct Axes {
  int rank = 0;
  Divisor size[kMaxRank];
  int64_t from[kMaxRank], to[kMaxRank];

  explicit Axes(const StridedSpace& space, int dims) : rank(dims) {
    for (int i = 0; i < dims; ++i) {
      const auto k = static_cast<size_t>(i);
      size[i] = Divisor(space.size[k]);
      from[i] = space.from[k];
      to[i] = space.to[k];
    }
  }
  MG_HD void Offsets(int64_t index, int64_t* from_at, int64_t* to_at) const {
    int64_t f = 0, t = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int64_t rest = size[i].Divide(index), at = index - rest * size[i].divisor();
      index = rest;
      f += at * from[i];
      t += at * to[i];
    }
    *from_at = f;
    *to_at = t;
  }
};

template <typename W>
struct CopyBody {
  Axes axes;
  const W* from;
  W* to;

  MG_HD void operator()(int64_t i) const {
    int64_t f, t;
    axes.Offsets(i, &f, &t);
    to[t] = from[f];
  }
};

// A transposition by squares: rows of the second-to-last dimension are consecutive in the source,
// those of the last in the destination.
//
//            source: row b, consecutive a           destination: row a, consecutive b
//   square   shared[b][a] = from[a + b * pitch]     to[a * pitch + b] = shared[b][a]
template <typename W>
struct TileBody {
  using Shared = Square<W>;
  static constexpr int kSide = Shared::kSide, kThreads = Shared::kThreads, kPhases = 2,
                       kResident = 4;

  Axes outer;
  const W* from;
  W* to;
  int64_t a, b;  // sizes
  int64_t from_pitch, to_pitch;
  Divisor a_tiles, b_tiles;
  bool read_packs, write_packs;

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int64_t rest = a_tiles.Divide(block), a0 = (block - rest * a_tiles.divisor()) * kSide;
    const int64_t outer_at = b_tiles.Divide(rest),
                  b0 = (rest - outer_at * b_tiles.divisor()) * kSide;
    int64_t f, t;
    outer.Offsets(outer_at, &f, &t);
    if (phase == 0) {
      shared.Read(from + f + a0 + b0 * from_pitch, from_pitch, b - b0, a - a0, read_packs, thread);
    } else {
      shared.Write(to + t + a0 * to_pitch + b0, to_pitch, b - b0, a - a0, write_packs, thread,
                   [](W word) { return word; });
    }
  }
};

// The dimension that is consecutive in the source, if tiles pay; else -1.
int TiledDimension(const StridedSpace& space) {
  const auto inner = static_cast<size_t>(space.rank - 1);
  if (space.to[inner] != 1 || space.from[inner] <= 1 || space.size[inner] < 8) return -1;
  for (int i = 0; i < space.rank - 1; ++i) {
    const auto k = static_cast<size_t>(i);
    if (space.from[k] == 1 && space.size[k] >= 8) return i;
  }
  return -1;
}

template <typename W>
Status Transpose(KernelContext& c, const W* from, W* to, const StridedSpace& space, int tiled) {
  const auto k = static_cast<size_t>(tiled), inner = static_cast<size_t>(space.rank - 1);
  StridedSpace rest;
  int64_t outer = 1;
  int64_t read_steps = space.from[inner] | space.size[k],
          write_steps = space.to[k] | space.size[inner];
  for (size_t i = 0; i < inner; ++i) {
    if (i == k) continue;
    rest.Add(space.size[i], space.from[i], space.to[i]);
    outer *= space.size[i];
    read_steps |= space.from[i];
    write_steps |= space.to[i];
  }
  const auto packs = [](const void* address, int64_t steps) {
    return Aligned(address, 16) && steps % kWidth<W> == 0;
  };
  constexpr int64_t kSide = TileBody<W>::kSide;
  const int64_t a_tiles = (space.size[k] + kSide - 1) / kSide,
                b_tiles = (space.size[inner] + kSide - 1) / kSide;
  return ForBlocks(c, outer * a_tiles * b_tiles,
                   TileBody<W>{Axes(rest, rest.rank), from, to, space.size[k], space.size[inner],
                               space.from[inner], space.to[k], Divisor(a_tiles), Divisor(b_tiles),
                               packs(from, read_steps), packs(to, write_steps)});
}

template <typename W>
struct FillBody {
  W value;
  W* to;
  MG_HD void operator()(int64_t i) const { to[i] = value; }
};

// Rows of parts side by side, and the whole that they make up. A launch handles at most kMost.
template <typename W, bool kJoin>
struct PartsBody {
  static constexpr int kMost = 32;
  int count;
  Divisor row;  // words of these parts in one row
  int64_t pitch;
  W* whole;
  W* parts[kMost];
  int64_t begin[kMost + 1];  // of each part in these parts' row

  MG_HD void operator()(int64_t i) const {
    const int64_t o = row.Divide(i), at = i - o * row.divisor();
    int low = 0, high = count;  // begin[low] <= at < begin[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= at ? low : high) = middle;
    }
    W* const part = parts[low] + o * (begin[low + 1] - begin[low]) + (at - begin[low]);
    W* const place = whole + o * pitch + at;
    if constexpr (kJoin) {
      *place = *part;
    } else {
      *part = *place;
    }
  }
};

template <bool kJoin>
Status MoveParts(KernelContext& c, std::span<const RowPart> parts, int64_t outer, char* whole) {
  size_t pitch = 0;
  uintptr_t fit = AddressOf(whole);
  for (const RowPart& part : parts) {
    if (part.bytes == 0) continue;
    pitch += part.bytes;
    fit |= part.bytes | AddressOf(part.data);
  }
  if (pitch == 0 || outer == 0) return Status();
  return DispatchWord(WordOf({fit}), [&](auto zero) {
    using W = decltype(zero);
    using Body = PartsBody<W, kJoin>;
    Body body;
    body.count = 0;
    body.pitch = static_cast<int64_t>(pitch / sizeof(W));
    body.begin[0] = 0;
    auto* base = reinterpret_cast<W*>(whole);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].bytes > 0) {
        const auto words = static_cast<int64_t>(parts[i].bytes / sizeof(W));
        body.parts[body.count] = static_cast<W*>(const_cast<void*>(parts[i].data));
        body.begin[body.count + 1] = body.begin[body.count] + words;
        ++body.count;
      }
      if (body.count == 0 || (body.count < Body::kMost && i + 1 < parts.size())) continue;
      const int64_t words = body.begin[body.count];
      body.row = Divisor(words);
      body.whole = base;
      MG_RETURN_IF_ERROR(ForEach(c, outer * words, body));
      base += words;
      body.count = 0;
    }
    return Status();
  });
}

}  // namespace

Status DeviceMoves::Strided(KernelContext& c, size_t element_size, const void* from, void* to,
                            const StridedSpace& space) {
  for (int i = 0; i < space.rank; ++i) {
    if (space.size[static_cast<size_t>(i)] == 0) return Status();
  }
  StridedSpace collapsed = Collapsed(space);
  if (collapsed.rank == 1 && collapsed.from[0] == 1 && collapsed.to[0] == 1)
    return Copy(c, to, from, static_cast<size_t>(collapsed.size[0]) * element_size);
  const int tiled = TiledDimension(collapsed);
  const size_t word = tiled < 0 ? Widened(element_size, from, to, &collapsed) : element_size;
  int64_t n = 1;
  for (int i = 0; i < collapsed.rank; ++i) n *= collapsed.size[static_cast<size_t>(i)];
  return DispatchWord(word, [&](auto zero) {
    using W = decltype(zero);
    const W* source = static_cast<const W*>(from);
    W* target = static_cast<W*>(to);
    if constexpr (sizeof(W) <= 8) {
      if (tiled >= 0) return Transpose<W>(c, source, target, collapsed, tiled);
    }
    return ForEach(c, n, CopyBody<W>{Axes(collapsed, collapsed.rank), source, target});
  });
}

Status DeviceMoves::Zero(KernelContext& c, void* to, size_t bytes) {
  return DeviceZero(c, to, bytes);
}

Status DeviceMoves::Copy(KernelContext& c, void* to, const void* from, size_t bytes) {
  return DeviceCopy(c, to, from, bytes);
}

Status DeviceMoves::Fill(KernelContext& c, size_t element_size, const void* value, void* to,
                         int64_t n) {
  return DispatchWord(element_size, [&](auto word) {
    using W = decltype(word);
    std::memcpy(&word, value, sizeof(W));
    return ForEach(c, n, FillBody<W>{word, static_cast<W*>(to)});
  });
}

Status DeviceMoves::Join(KernelContext& c, DType, std::span<const RowPart> parts, int64_t outer,
                         void* to) {
  return MoveParts<true>(c, parts, outer, static_cast<char*>(to));
}

Status DeviceMoves::Part(KernelContext& c, DType, const void* from, int64_t outer,
                         std::span<const RowPart> parts) {
  return MoveParts<false>(c, parts, outer, static_cast<char*>(const_cast<void*>(from)));
}

}  // namespace monograph::ops
