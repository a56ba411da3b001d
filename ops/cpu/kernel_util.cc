// Small integer inputs, strided copies, and conversions of 16-bit floats. A strided copy first
// joins dimensions that are contiguous in both tensors, and then goes one of three ways: a
// transposition by tiles of 16 x 16, since rows of one tensor are columns of the other and whole
// rows would miss the cache; one long row, cut for the threads; or row by row.
#include "ops/cpu/kernel_util.h"

#include <algorithm>
#include <cstring>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "ops/cpu/pieces_cpu.h"
#include "ops/words.h"

namespace monograph {

Result<SmallInts> IntsOf(const Tensor& tensor, std::string_view what) {
  const int64_t n = tensor.elements();
  if (tensor.shape().rank() > 1 || n > SmallInts::kMaxSize) {
    return InvalidArgument(std::string(what) +
                           " must be a scalar or a short vector, not of shape " +
                           tensor.shape().ToString());
  }
  SmallInts ints;
  if (tensor.dtype() == DT_INT32) {
    for (int32_t value : tensor.values<int32_t>()) ints.push_back(value);
  } else if (tensor.dtype() == DT_INT64) {
    for (int64_t value : tensor.values<int64_t>()) ints.push_back(value);
  } else if (tensor.dtype() == DT_INT8) {
    for (int8_t value : tensor.values<int8_t>()) ints.push_back(value);
  } else {
    return InvalidArgument(std::string(what) + " must be int32 or int64, not " +
                           std::string(DTypeName(tensor.dtype())));
  }
  return ints;
}

Result<int64_t> IntOf(const Tensor& tensor, std::string_view what) {
  MG_ASSIGN_OR_RETURN(const SmallInts ints, IntsOf(tensor, what));
  if (ints.size() != 1) {
    return InvalidArgument(std::string(what) + " must be one number, not of shape " +
                           tensor.shape().ToString());
  }
  return ints[0];
}

Result<Shape> ShapeFrom(const Tensor& tensor, std::string_view what) {
  MG_ASSIGN_OR_RETURN(const SmallInts ints, IntsOf(tensor, what));
  return Shape::Make(ints.span());
}

Result<const std::string*> StringOf(const Tensor& tensor, std::string_view what) {
  if (tensor.elements() != 1)
    return InvalidArgument(std::string(what) +
                           " must be a scalar, but had shape: " + tensor.shape().ToString());
  return tensor.strings();
}

Result<int> AxisOf(const Tensor& tensor, int rank) {
  MG_ASSIGN_OR_RETURN(const int64_t axis, IntOf(tensor, "axis"));
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("axis " + std::to_string(axis) +
                           " is out of range for a tensor of rank " + std::to_string(rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::array<int64_t, kMaxRank> StridesOf(const Shape& shape) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= shape.dim(i);
  }
  return strides;
}

StridedSpace Collapsed(const StridedSpace& space) {
  StridedSpace out;
  for (size_t i = 0; i < static_cast<size_t>(space.rank); ++i) {
    if (space.size[i] == 1) continue;
    if (out.rank > 0) {
      const auto last = static_cast<size_t>(out.rank - 1);
      if (out.from[last] == space.from[i] * space.size[i] &&
          out.to[last] == space.to[i] * space.size[i]) {
        out.size[last] *= space.size[i];
        out.from[last] = space.from[i];
        out.to[last] = space.to[i];
        continue;
      }
    }
    out.Add(space.size[i], space.from[i], space.to[i]);
  }
  if (out.rank == 0) out.Add(1, 1, 1);
  return out;
}

namespace {

template <typename W>
void CopyRow(const W* from, W* to, int64_t n, int64_t from_stride, int64_t to_stride) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(W));
  } else if (from_stride == 0 && to_stride == 1) {
    std::fill_n(to, n, *from);
  } else if (to_stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * from_stride];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// Offsets of the index with linear number `index` in the first `rank` dimensions.
struct Position {
  std::array<int64_t, kMaxRank> at{};
  int64_t from = 0, to = 0;

  Position(const StridedSpace& space, int rank, int64_t index) {
    for (int i = rank - 1; i >= 0; --i) {
      const auto d = static_cast<size_t>(i);
      at[d] = index % space.size[d];
      index /= space.size[d];
      from += at[d] * space.from[d];
      to += at[d] * space.to[d];
    }
  }
  void Next(const StridedSpace& space, int rank) {
    for (int i = rank - 1; i >= 0; --i) {
      const auto d = static_cast<size_t>(i);
      from += space.from[d];
      to += space.to[d];
      if (++at[d] < space.size[d]) return;
      from -= space.size[d] * space.from[d];
      to -= space.size[d] * space.to[d];
      at[d] = 0;
    }
  }
};

constexpr int64_t kTile = 16;

// Rows of the second-to-last dimension are consecutive in the source, those of the last in the
// destination.
template <typename W>
void CopyTile(const W* from, W* to, int64_t rows, int64_t columns, int64_t from_stride,
              int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < columns; ++k) to[r * to_stride + k] = from[k * from_stride + r];
  }
}

template <typename W>
void CopyWords(KernelContext& c, const W* from, W* to, StridedSpace space) {
  const auto inner = static_cast<size_t>(space.rank - 1);
  int64_t outer = 1;
  for (size_t i = 0; i < inner; ++i) outer *= space.size[i];

  // A transposition: bring the dimension that is consecutive in the source next to the last one,
  // and go by tiles.
  int consecutive = -1;
  for (int i = 0; i < space.rank - 1; ++i) {
    if (space.from[static_cast<size_t>(i)] == 1) consecutive = i;
  }
  if (consecutive >= 0 && space.to[inner] == 1 && space.from[inner] > 1 && space.size[inner] >= 4 &&
      space.size[static_cast<size_t>(consecutive)] >= 4) {
    const size_t last_outer = inner - 1;
    std::rotate(space.size.begin() + consecutive, space.size.begin() + consecutive + 1,
                space.size.begin() + space.rank - 1);
    std::rotate(space.from.begin() + consecutive, space.from.begin() + consecutive + 1,
                space.from.begin() + space.rank - 1);
    std::rotate(space.to.begin() + consecutive, space.to.begin() + consecutive + 1,
                space.to.begin() + space.rank - 1);
    const int64_t rows = space.size[last_outer], columns = space.size[inner];
    const int64_t tiles = (rows + kTile - 1) / kTile;
    const int outer_rank = space.rank - 2;
    const int64_t blocks = outer / rows * tiles;
    const int64_t cost = 1 + kTile * columns * static_cast<int64_t>(sizeof(W)) / 8;
    c.ParallelFor(blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const Position base(space, outer_rank, block / tiles);
        const int64_t row = block % tiles * kTile, n = std::min(kTile, rows - row);
        for (int64_t column = 0; column < columns; column += kTile) {
          if (column % kPiece == 0 && c.cancelled()) return;
          CopyTile(from + base.from + row + column * space.from[inner],
                   to + base.to + row * space.to[last_outer] + column, n,
                   std::min(kTile, columns - column), space.from[inner], space.to[last_outer]);
        }
      }
    });
    return;
  }

  const int64_t n = space.size[inner];
  if (outer == 1 && n > 65536) {  // one long row
    c.ParallelFor((n + 4095) / 4096, 4096 * static_cast<int64_t>(sizeof(W)) / 8,
                  [&](int64_t begin, int64_t end) {
                    const int64_t first = begin * 4096, count = std::min(n, end * 4096) - first;
                    CopyRow(from + first * space.from[inner], to + first * space.to[inner], count,
                            space.from[inner], space.to[inner]);
                  });
    return;
  }
  c.ParallelFor(outer, 2 + n * static_cast<int64_t>(sizeof(W)) / 8,
                [&](int64_t begin, int64_t end) {
                  Position at(space, space.rank - 1, begin);
                  for (int64_t i = begin; i < end; ++i) {
                    InPieces(c, n, 16 * kPiece, [&](int64_t first, int64_t last) {
                      CopyRow(from + at.from + first * space.from[inner],
                              to + at.to + first * space.to[inner], last - first, space.from[inner],
                              space.to[inner]);
                    });
                    at.Next(space, space.rank - 1);
                  }
                });
}

}  // namespace

void StridedCopy(KernelContext& c, size_t element_size, const void* from, void* to,
                 StridedSpace space) {
  for (int i = 0; i < space.rank; ++i) {
    if (space.size[static_cast<size_t>(i)] == 0) return;
  }
  const StridedSpace collapsed = Collapsed(space);
  const Status status = ops::DispatchWord(element_size, [&](auto word) {
    using W = decltype(word);
    CopyWords(c, static_cast<const W*>(from), static_cast<W*>(to), collapsed);
    return Status();
  });
  MG_CHECK(status.ok());
}

void ToFloats(const half* in, float* out, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  }
#endif
  for (; i < n; ++i) out[i] = in[i];
}

void FromFloats(const float* in, half* out, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i) out[i] = half(in[i]);
}

void ToFloats(const bfloat16* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = in[i];
}

void FromFloats(const float* in, bfloat16* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bfloat16(in[i]);
}

}  // namespace monograph
