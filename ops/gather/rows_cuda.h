// Rows that indices name, read from a table or added up, on a GPU. An index that no row has gives a
// row of zeros when it is read, and nothing when it is written: a kernel cannot look at it on the
// host, which a CPU does to fail the step.
#pragma once

#include "ops/index_list.h"
#include "ops/launch.h"

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
  size_t word = 16;
  const uintptr_t fit =
      row_bytes | reinterpret_cast<uintptr_t>(table) | reinterpret_cast<uintptr_t>(out);
  while (fit % word != 0) word /= 2;
  return DispatchWord(word, [&](auto zero) {
    using W = decltype(zero);
    const auto words = static_cast<int64_t>(row_bytes / sizeof(W));
    return ForEach(
        c, rows * words,
        GatherBody<W>{static_cast<const W*>(table), static_cast<W*>(out), IndexList(indices),
                      Divisor(words), Divisor(count), Divisor(outer), limit});
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
