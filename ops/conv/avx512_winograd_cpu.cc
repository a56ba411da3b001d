#include "ops/avx512_vectors.h"
#include "ops/conv/avx512_tiles.h"

namespace monograph::ops::avx512 {
namespace {

// ---- the transforms of 6 values
// ----------------------------------------------------------------------------------

constexpr float kA = 0.625f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB;
constexpr float kSum = kA2 + kB2, kProduct = kA2 * kB2;
// One over the products of differences of a point to all others.
constexpr float kAtZero = 1 / kProduct, kAtA = 1 / (2 * kA2 * (kA2 - kB2)),
                kAtB = 1 / (2 * kB2 * (kB2 - kA2));

// B^T d; points in the order 0, a, -a, b, -b, infinity.
MG_INLINE void SpreadLine(const V* d, V* to) {
  const V even_a = MulSub(kB2, d[2], d[4]), odd_a = MulSub(kB2, d[1], d[3]);
  const V even_b = MulSub(kA2, d[2], d[4]), odd_b = MulSub(kA2, d[1], d[3]);
  to[0] = MulAdd(kProduct, d[0], MulSub(kSum, d[2], d[4]));
  to[1] = MulAdd(kA, odd_a, even_a), to[2] = MulSub(kA, odd_a, even_a);
  to[3] = MulAdd(kB, odd_b, even_b), to[4] = MulSub(kB, odd_b, even_b);
  to[5] = MulAdd(kProduct, d[1], MulSub(kSum, d[3], d[5]));
}

// G f of kSize values.
template <int kSize>
MG_INLINE void ExpandLine(const V* f, V* to) {
  V even_a = f[0], even_b = f[0], odd_a = f[1], odd_b = f[1];
  if constexpr (kSize > 2) even_a = MulAdd(kA2, f[2], even_a), even_b = MulAdd(kB2, f[2], even_b);
  if constexpr (kSize > 3) odd_a = MulAdd(kA2, f[3], odd_a), odd_b = MulAdd(kB2, f[3], odd_b);
  if constexpr (kSize > 4) {
    even_a = MulAdd(kA2 * kA2, f[4], even_a), even_b = MulAdd(kB2 * kB2, f[4], even_b);
  }
  even_a = Mul(kAtA, even_a), even_b = Mul(kAtB, even_b);
  to[0] = Mul(kAtZero, f[0]);
  to[1] = MulAdd(kA * kAtA, odd_a, even_a), to[2] = MulSub(kA * kAtA, odd_a, even_a);
  to[3] = MulAdd(kB * kAtB, odd_b, even_b), to[4] = MulSub(kB * kAtB, odd_b, even_b);
  to[5] = f[kSize - 1];
}

// A^T m: kSize values.
template <int kSize>
MG_INLINE void ContractLine(const V* m, V* to) {
  const V even_a = Add(m[1], m[2]), odd_a = Sub(m[1], m[2]);
  const V even_b = Add(m[3], m[4]), odd_b = Sub(m[3], m[4]);
  to[0] = Add(m[0], Add(even_a, even_b));
  to[1] = MulAdd(kA, odd_a, Mul(kB, odd_b));
  if constexpr (kSize > 2) to[2] = MulAdd(kA2, even_a, Mul(kB2, even_b));
  if constexpr (kSize > 3) to[3] = MulAdd(kA * kA2, odd_a, Mul(kB * kB2, odd_b));
  if constexpr (kSize > 4) to[4] = MulAdd(kA2 * kA2, even_a, Mul(kB2 * kB2, even_b));
  to[kSize - 1] = Add(to[kSize - 1], m[5]);
}

// ---- the transforms of tiles
// -------------------------------------------------------------------------------------

// Neighbours share columns: each is transformed once, then rows are.
template <int kStep>
void SpreadRow(const Image& shape, const float* image, int64_t top, int64_t left, const Tiles& to) {
  constexpr int64_t kAtOnce = 16;
  V columns[(kAtOnce - 1) * kStep + kSide][kSide];
  for (int64_t first = 0; first < to.count; first += kAtOnce) {
    const int64_t tiles = to.count - first < kAtOnce ? to.count - first : kAtOnce;
    const int64_t width = (tiles - 1) * kStep + kSide;
    for (int64_t c = 0; c < shape.channels; c += kLanes) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t at = left + first * kStep + x;
        V d[kSide];
        Repeat<kSide>([&](auto i) __attribute__((always_inline)) {
          const int64_t y = top + i;
          d[i] = at >= 0 && at < shape.width && y >= 0 && y < shape.height
                     ? Load(image + (y * shape.width + at) * shape.channels + c)
                     : Zero();
        });
        SpreadLine(d, columns[x]);
      }
      for (int64_t t = 0; t < tiles; ++t) {
        float* const target = to.data + (first + t) * shape.channels + c;
        Repeat<kSide>([&](auto i) __attribute__((always_inline)) {
          V d[kSide], line[kSide];
          Repeat<kSide>([&](auto j)
                            __attribute__((always_inline)) { d[j] = columns[t * kStep + j][i]; });
          SpreadLine(d, line);
          Repeat<kSide>([&](auto j) __attribute__((always_inline)) {
            Store(target + (i * kSide + j) * to.stride, line[j]);
          });
        });
      }
    }
  }
}

// G f G^T, where load(i, j) is f, to store(point, value).
template <int kSize, typename Load, typename Store>
MG_INLINE void Expand(const Load& load, const Store& store) {
  V columns[kSize][kSide];
  Repeat<kSize>([&](auto j) __attribute__((always_inline)) {
    V f[kSize];
    Repeat<kSize>([&](auto i) __attribute__((always_inline)) { f[i] = load(i, j); });
    ExpandLine<kSize>(f, columns[j]);
  });
  Repeat<kSide>([&](auto i) __attribute__((always_inline)) {
    V f[kSize], line[kSide];
    Repeat<kSize>([&](auto j) __attribute__((always_inline)) { f[j] = columns[j][i]; });
    ExpandLine<kSize>(f, line);
    Repeat<kSide>([&](auto j) __attribute__((always_inline)) { store(i * kSide + j, line[j]); });
  });
}

// A^T m A, where load(point) is m, to store(i, j, value).
template <int kSize, typename Load, typename Store>
MG_INLINE void Contract(const Load& load, const Store& store) {
  V columns[kSide][kSize];
  Repeat<kSide>([&](auto j) __attribute__((always_inline)) {
    V m[kSide];
    Repeat<kSide>([&](auto i) __attribute__((always_inline)) { m[i] = load(i * kSide + j); });
    ContractLine<kSize>(m, columns[j]);
  });
  Repeat<kSize>([&](auto i) __attribute__((always_inline)) {
    V m[kSide], line[kSize];
    Repeat<kSide>([&](auto j) __attribute__((always_inline)) { m[j] = columns[j][i]; });
    ContractLine<kSize>(m, line);
    Repeat<kSize>([&](auto j) __attribute__((always_inline)) { store(i, j, line[j]); });
  });
}

template <int kSize>
void ExpandRow(const Image& shape, const float* image, int64_t top, const Tiles& to) {
  for (int64_t t = 0; t < to.count; ++t) {
    const int64_t left = t * kSize;
    for (int64_t c = 0; c < shape.channels; c += kLanes) {
      float* const target = to.data + t * shape.channels + c;
      Expand<kSize>(
          [&](auto i, auto j) __attribute__((always_inline)) {
            const int64_t y = top + i, x = left + j;
            return y < shape.height && x < shape.width
                       ? Load(image + (y * shape.width + x) * shape.channels + c)
                       : Zero();
          },
          [&](int point, V value)
              __attribute__((always_inline)) { Store(target + point * to.stride, value); });
    }
  }
}

template <int kSize>
bool ContractRow(const Tiles& from, const float* bias, bool relu, const Image& shape, float* image,
                 int64_t top) {
  FiniteCheck finite;
  for (int64_t t = 0; t < from.count; ++t) {
    const int64_t left = t * kSize;
    for (int64_t c = 0; c < shape.channels; c += kLanes) {
      const float* const source = from.data + t * shape.channels + c;
      const V add = bias == nullptr ? Zero() : Load(bias + c);
      Contract<kSize>(
          [&](int point)
              __attribute__((always_inline)) { return Load(source + point * from.stride); },
          [&](auto i, auto j, V value) __attribute__((always_inline)) {
            const int64_t y = top + i, x = left + j;
            if (y >= shape.height || x >= shape.width) return;
            value = Add(value, add);
            finite.Look(value);
            Store(image + (y * shape.width + x) * shape.channels + c, relu ? Relu(value) : value);
          });
    }
  }
  return finite.ok();
}

template <int kSize>
void ExpandAll(const float* filter, int64_t count, float* points) {
  for (int64_t n = 0; n < count; n += kLanes) {
    Expand<kSize>(
        [&](auto i, auto j)
            __attribute__((always_inline)) { return Load(filter + (i * kSize + j) * count + n); },
        [&](int point, V value)
            __attribute__((always_inline)) { Store(points + point * count + n, value); });
  }
}

template <int kSize>
bool ContractAll(const float* points, int64_t count, float* filter) {
  FiniteCheck finite;
  for (int64_t n = 0; n < count; n += kLanes) {
    Contract<kSize>(
        [&](int point) __attribute__((always_inline)) { return Load(points + point * count + n); },
        [&](auto i, auto j, V value) __attribute__((always_inline)) {
          finite.Look(value);
          Store(filter + (i * kSize + j) * count + n, value);
        });
  }
  return finite.ok();
}

}  // namespace

void Spread(const Image& shape, const float* image, int64_t top, int64_t left, int64_t step,
            const Tiles& to) {
  (step == 2 ? SpreadRow<2> : SpreadRow<4>)(shape, image, top, left, to);
}

void ExpandTiles(int size, const Image& shape, const float* image, int64_t top, const Tiles& to) {
  (size == 2 ? ExpandRow<2> : ExpandRow<4>)(shape, image, top, to);
}

bool ContractTiles(int size, const Tiles& from, const float* bias, bool relu, const Image& shape,
                   float* image, int64_t top) {
  return (size == 2 ? ContractRow<2> : ContractRow<4>)(from, bias, relu, shape, image, top);
}

void ExpandFilter(int size, const float* filter, int64_t count, float* points) {
  (size == 3 ? ExpandAll<3> : ExpandAll<5>)(filter, count, points);
}

bool ContractFilter(int size, const float* points, int64_t count, float* filter) {
  return (size == 3 ? ContractAll<3> : ContractAll<5>)(points, count, filter);
}

}  // namespace monograph::ops::avx512
