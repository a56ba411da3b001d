#include "ops/avx512_vectors.h"

namespace monograph::ops::avx512 {
namespace {

// kRows times kVectors sums, all in registers.
template <int kRows, int kVectors>
bool Block(const Product& p, int64_t row, int64_t column) {
  const float *a = p.a + row * p.a_row, *b = p.b + column;
  float* c = p.c + row * p.c_row + column;
  V sums[kRows][kVectors];
  Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
      sums[i][j] = p.accumulate        ? Load(c + i * p.c_row + j * kLanes)
                   : p.bias != nullptr ? Load(p.bias + column + j * kLanes)
                                       : Zero();
    });
  });
  const int64_t a_row = p.a_row, a_step = p.a_step, b_step = p.b_step;
  for (int64_t o = 0; o < p.outer; ++o) {
    const float *ak = a + o * p.a_outer, *bk = b + o * p.b_outer;
    for (int64_t k = 0; k < p.depth; ++k, ak += a_step, bk += b_step) {
      V right[kVectors];
      Repeat<kVectors>([&](auto j)
                           __attribute__((always_inline)) { right[j] = Load(bk + j * kLanes); });
      Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
        const V left = Set(ak[i * a_row]);
        Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
          sums[i][j] = _mm512_fmadd_ps(left, right[j], sums[i][j]);
        });
      });
    }
  }
  FiniteCheck finite;
  if (p.check) {
    Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
      Repeat<kVectors>([&](auto j) __attribute__((always_inline)) { finite.Look(sums[i][j]); });
    });
  }
  Repeat<kRows>([&](auto i) __attribute__((always_inline)) {
    Repeat<kVectors>([&](auto j) __attribute__((always_inline)) {
      Store(c + i * p.c_row + j * kLanes, p.relu ? Relu(sums[i][j]) : sums[i][j]);
    });
  });
  return finite.ok();
}

// All rows of kVectors vectors, in blocks of about equal height.
template <int kVectors>
bool Columns(const Product& p, int64_t column) {
  // Of 32 registers, one row of b and one element of a.
  constexpr int kMost = kVectors == 4 ? 6 : kVectors == 3 ? 9 : 14;
  using Fn = bool (*)(const Product&, int64_t, int64_t);
  static constexpr auto kBlocks = []<int... kI>(std::integer_sequence<int, kI...>) {
    struct Table {
      Fn of[kMost];
    };
    return Table{{&Block<kI + 1, kVectors>...}};
  }
  (std::make_integer_sequence<int, kMost>());
  const int64_t blocks = (p.rows + kMost - 1) / kMost;
  bool finite = true;
  for (int64_t i = 0, row = 0; i < blocks; ++i) {
    const int64_t end = p.rows * (i + 1) / blocks;
    finite &= kBlocks.of[end - row - 1](p, row, column);
    row = end;
  }
  return finite;
}

}  // namespace

bool Multiply(const Product& p) {
  bool finite = true;
  for (int64_t column = 0; column < p.columns;) {
    switch ((p.columns - column) / kLanes) {
      case 1:
        finite &= Columns<1>(p, column);
        column += 1 * kLanes;
        break;
      case 2:
        finite &= Columns<2>(p, column);
        column += 2 * kLanes;
        break;
      case 3:
        finite &= Columns<3>(p, column);
        column += 3 * kLanes;
        break;
      default:
        finite &= Columns<4>(p, column);
        column += 4 * kLanes;
    }
  }
  return finite;
}

}  // namespace monograph::ops::avx512
