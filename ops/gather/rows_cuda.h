// Rows that indices name, read from a table or added up, on a GPU. An index that no row has gives a
// row of zeros when it is read, and nothing when it is written: a kernel cannot look at it on the
// host, which a CPU does to fail the step.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "ops/gpu/index_list.h"
#include "ops/gpu/launch.h"

namespace monograph::ops::gather {

// Result row r is row index[b * count + r % count] of block r / count of the table; a block has
// `limit` rows, and `outer` blocks share a batch entry b of the indices.
template <typename W>
struct GatherBody {
  const W* table;
  W* out;
  IndexList index;
  Divisor words;  // of a row
  Divisor count, outer;
  int64_t limit;

  MG_HD void operator()(int64_t i) const {
    const int64_t r = words.Divide(i), word = i - r * words.divisor();
    const int64_t block = count.Divide(r), b = outer.Divide(block);
    const int64_t row = index[b * count.divisor() + (r - block * count.divisor())];
    out[i] = row >= 0 && row < limit ? table[(block * limit + row) * words.divisor() + word] : W{};
  }
};

// `row_bytes` is a row's size; `rows` that of the result.
inline Status GatherRows(KernelContext& c, const void* table, void* out, const Tensor& indices,
                         size_t row_bytes, int64_t rows, int64_t count, int64_t outer,
                         int64_t limit) {
  if (rows == 0 || row_bytes == 0) return Status();
  return DispatchWord(WordOf({row_bytes, AddressOf(table), AddressOf(out)}), [&](auto zero) {
    using W = decltype(zero);
    const auto words = static_cast<int64_t>(row_bytes / sizeof(W));
    return ForEach(
        c, rows * words,
        GatherBody<W>{static_cast<const W*>(table), static_cast<W*>(out), IndexList(indices),
                      Divisor(words), Divisor(count), Divisor(outer), limit});
  });
}

// Rows that lie anywhere, and the same rows side by side in `whole`: kCollect moves them there (a
// nullptr is a row of zeros), else from there. A launch handles at most kMost.
template <typename W, bool kCollect>
struct MoveRowsBody {
  static constexpr int kMost = 2048;
  Divisor words;  // of a row
  W* whole;
  W* rows[kMost];

  MG_HD void operator()(int64_t i) const {
    const int64_t r = words.Divide(i), word = i - r * words.divisor();
    W* const row = rows[r];
    if constexpr (kCollect) {
      whole[i] = row == nullptr ? W{} : row[word];
    } else {
      row[word] = whole[i];
    }
  }
};

template <bool kCollect>
Status MoveRows(KernelContext& c, std::span<char* const> rows, size_t row_bytes, char* whole) {
  if (rows.empty() || row_bytes == 0) return Status();
  uintptr_t fit = row_bytes | AddressOf(whole);
  for (const char* row : rows) fit |= AddressOf(row);
  return DispatchWord(WordOf({fit}), [&](auto zero) {
    using W = decltype(zero);
    using Body = MoveRowsBody<W, kCollect>;
    const auto words = static_cast<int64_t>(row_bytes / sizeof(W));
    auto body = std::make_unique<Body>();
    body->words = Divisor(words);
    body->whole = reinterpret_cast<W*>(whole);
    for (size_t first = 0; first < rows.size(); first += Body::kMost) {
      const size_t count = std::min<size_t>(Body::kMost, rows.size() - first);
      for (size_t k = 0; k < count; ++k) body->rows[k] = reinterpret_cast<W*>(rows[first + k]);
      const int64_t n = static_cast<int64_t>(count) * words;
      MG_RETURN_IF_ERROR(ForEach(c, n, *body));
      body->whole += n;
    }
    return Status();
  });
}

// table[index[i]] += rows[i] (or -=), in the order of i for each row; a `step` of 0 adds the same
// element everywhere.
template <typename T>
struct AddRowsBody {
  Chains chains;
  IndexList index;
  const T* rows;
  T* table;
  Divisor columns;
  int64_t row_step, step;
  bool subtract;

  MG_HD void operator()(int64_t at) const {
    const int64_t i = columns.Divide(at), k = at - i * columns.divisor();
    if (chains.head[i] == 0) return;
    T* const place = table + index[i] * columns.divisor() + k;
    T sum = *place;
    chains.Walk(i, [&](int64_t p) {
      const auto old = Widen(sum), change = Widen(rows[p * row_step + k * step]);
      sum = Narrow<T>(static_cast<Accumulator<T>>(subtract ? old - change : old + change));
    });
    *place = sum;
  }
};

template <typename T>
Status AddRows(KernelContext& c, T* table, int64_t limit, int64_t columns, const Tensor& indices,
               const T* rows, bool one_for_all, bool subtract) {
  const int64_t n = indices.elements();
  if (n == 0 || columns == 0) return Status();
  Tensor memory;
  MG_ASSIGN_OR_RETURN(const Chains chains, MakeChains(c, indices, limit, &memory));
  return ForEach(c, n * columns,
                 AddRowsBody<T>{chains, IndexList(indices), rows, table, Divisor(columns),
                                one_for_all ? 0 : columns, one_for_all ? 0 : 1, subtract});
}

}  // namespace monograph::ops::gather
