// Attention and its gradient, a block of rows by a block of columns at a time, in float: what lies
// in between, [rows, columns] for every head, is never whole in memory.
//
// Forward a block of rows goes over all columns with a running maximum m and sum l (M. Milakov and
// N. Gimelshein, "Online normalizer calculation for softmax", 2018): where a larger maximum comes,
// what was added up so far is scaled by exp(old - new). It leaves m + log l for each row, from
// which the gradient finds the weights again (T. Dao and others, "FlashAttention", 2022):
//
//   p = exp(s - statistics)   ds = p (gradient value^T - sum(gradient output))
//   dquery = scale ds key     dkey = scale ds^T query     dvalue = p^T gradient
//
// What a row does not see has the weight 0; columns that no row of a block sees are not read.
//
// Rows are shared out among threads forward, heads backward. Results do not depend on the number of
// threads.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "executor/kernel.h"
#include "ops/attention/sizes.h"
#include "ops/elementwise/math.h"
#include "ops/gpu/device_code.h"

namespace monograph::ops::attention {
namespace {

constexpr int64_t kRows = 32, kColumns = 64;
constexpr int64_t kMostParts = 64;  // each has scratch memory of its own

// c [rows, columns] += op(a) b; element (i, k) of op(a) is a[i * a_row + k * a_step]. Rows of b
// serve kAtOnce rows of c each time that they are read.
template <int64_t kAtOnce>
void AddRows(int64_t inner, int64_t columns, const float* a, int64_t a_row, int64_t a_step,
             const float* b, int64_t b_row, float* __restrict c, int64_t c_row) {
  for (int64_t k = 0; k < inner; ++k) {
    float factors[kAtOnce];
    for (int64_t i = 0; i < kAtOnce; ++i) factors[i] = a[i * a_row + k * a_step];
    const float* const from = b + k * b_row;
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < kAtOnce; ++i) c[i * c_row + j] += factors[i] * from[j];
    }
  }
}
void AddProduct(int64_t rows, int64_t inner, int64_t columns, const float* a, int64_t a_row,
                int64_t a_step, const float* b, int64_t b_row, float* c, int64_t c_row) {
  constexpr int64_t kAtOnce = 4;
  int64_t i = 0;
  for (; i + kAtOnce <= rows; i += kAtOnce)
    AddRows<kAtOnce>(inner, columns, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
  for (; i < rows; ++i)
    AddRows<1>(inner, columns, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
}

// `count` tokens of one head, as floats times `factor`.
template <typename T>
void Load(const T* from, int64_t count, const Sizes& s, float factor, float* to) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < s.size; ++d)
      to[i * s.size + d] = factor * static_cast<float>(from[i * s.token() + d]);
}
// The same as columns of kColumns.
template <typename T>
void LoadTurned(const T* from, int64_t count, const Sizes& s, float* to) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < s.size; ++d)
      to[d * kColumns + i] = static_cast<float>(from[i * s.token() + d]);
}
template <typename T>
void Store(const float* from, int64_t count, const Sizes& s, float factor, T* to) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < s.size; ++d) to[i * s.token() + d] = T(factor * from[i * s.size + d]);
}

// Which columns are seen.
class Seen {
 public:
  // `lengths`: the input of that number, if there is one.
  static Result<Seen> Of(const KernelContext& c, const Sizes& s, int lengths) {
    Seen seen(s);
    if (!s.with_lengths) return seen;
    seen.lengths_ = c.input(lengths).data<int32_t>();
    for (int64_t i = 0; i < s.n; ++i) {
      if (seen.lengths_[i] < 0 || seen.lengths_[i] > s.columns) {
        return InvalidArgument("lengths[" + std::to_string(i) + "] is " +
                               std::to_string(seen.lengths_[i]) + ", not in [0, " +
                               std::to_string(s.columns) + "]");
      }
    }
    return seen;
  }

  // By some row of sequence n.
  int64_t BySequence(int64_t n) const { return lengths_ == nullptr ? columns_ : lengths_[n]; }
  // By a row of it, or by some of rows up to `row`.
  int64_t ByRow(int64_t n, int64_t row) const {
    return causal_ ? std::min(BySequence(n), row + 1) : BySequence(n);
  }

 private:
  explicit Seen(const Sizes& s) : columns_(s.columns), causal_(s.causal) {}

  int64_t columns_;
  bool causal_;
  const int32_t* lengths_ = nullptr;
};

// Nanoseconds, roughly: `products` of rows by columns by size.
int64_t CostOf(const Sizes& s, int64_t rows, int64_t products) {
  return std::max<int64_t>(1, rows * std::max<int64_t>(1, s.columns) * s.size * products / 8);
}

// Calls fn(item, scratch) for each item, in parts that have `floats` of scratch memory each.
template <typename Fn>
Status ForItems(KernelContext& c, int64_t items, int64_t cost, int64_t floats, const Fn& fn) {
  const int64_t parts = std::min(items, kMostParts);
  MG_ASSIGN_OR_RETURN(Tensor scratch, c.AllocateTemp(DT_FLOAT, Shape{parts, floats}));
  float* const memory = scratch.data<float>();
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t i = items * part / parts; i < items * (part + 1) / parts; ++i) {
        if (c.cancelled()) return;
        fn(i, memory + part * floats);
      }
    }
  };
  c.ParallelFor(parts, cost * items / parts, std::ref(run));
  return Status();
}

template <typename T>
class AttentionKernel : public Kernel {
 public:
  explicit AttentionKernel(const KernelConstruction& k)
      : scale_(k.attr<float>("scale")), causal_(k.attr<bool>("causal")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Sizes s, SizesOf(c, false, causal_));
    MG_ASSIGN_OR_RETURN(const Seen seen, Seen::Of(c, s, 3));
    MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, s.query()));
    MG_ASSIGN_OR_RETURN(Tensor * statistics, c.AllocateOutput(1, s.statistics()));
    const T *q = c.input(0).data<T>(), *k = c.input(1).data<T>(), *v = c.input(2).data<T>();
    T* const o = output->data<T>();
    float* const stats = statistics->data<float>();
    const int64_t blocks = (s.rows + kRows - 1) / kRows;
    const int64_t floats =
        2 * kRows * s.size + 2 * kColumns * s.size + kRows * kColumns + 2 * kRows;
    if (s.rows == 0 || s.statistics().elements() == 0) return Status();
    return ForItems(c, s.n * s.heads * blocks, CostOf(s, kRows, 2), floats,
                    [&](int64_t item, float* scratch) {
                      const int64_t which = item / blocks, begin = item % blocks * kRows;
                      const int64_t n = which / s.heads, head = which % s.heads;
                      const int64_t to = (n * s.rows + begin) * s.token() + head * s.size;
                      const int64_t from = n * s.columns * s.token() + head * s.size;
                      const auto of_row = [&](int64_t row) { return seen.ByRow(n, begin + row); };
                      Block(c, s, std::min(kRows, s.rows - begin), of_row, q + to, k + from,
                            v + from, o + to, stats + which * s.rows + begin, scratch);
                    });
  }

 private:
  // Row i sees of_row(i) columns, no fewer than the row before it.
  template <typename OfRow>
  void Block(const KernelContext& c, const Sizes& s, int64_t rows, const OfRow& of_row, const T* q,
             const T* k, const T* v, T* o, float* stats, float* scratch) const {
    float* const query = scratch;
    float* const out = query + kRows * s.size;
    float* const keys = out + kRows * s.size;
    float* const values = keys + kColumns * s.size;
    float* const weights = values + kColumns * s.size;
    float* const top = weights + kRows * kColumns;
    float* const sum = top + kRows;
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    Load(q, rows, s, scale_, query);
    std::fill_n(out, rows * s.size, 0.0f);
    std::fill_n(top, rows, kLowest);
    std::fill_n(sum, rows, 0.0f);
    const int64_t last = of_row(rows - 1);
    for (int64_t j = 0; j < last && !c.cancelled(); j += kColumns) {
      const int64_t columns = std::min(kColumns, last - j);
      LoadTurned(k + j * s.token(), columns, s, keys);
      Load(v + j * s.token(), columns, s, 1, values);
      std::fill_n(weights, rows * kColumns, 0.0f);
      AddProduct(rows, s.size, columns, query, s.size, 1, keys, kColumns, weights, kColumns);
      for (int64_t i = 0; i < rows; ++i) {
        float* const row = weights + i * kColumns;
        const int64_t seen = std::clamp<int64_t>(of_row(i) - j, 0, columns);
        std::fill(row + seen, row + columns, 0.0f);
        if (seen == 0) continue;
        const float most = std::max(top[i], *std::max_element(row, row + seen));
        if (most == kLowest) {
          std::fill_n(row, seen, 0.0f);
          continue;
        }
        const float shrunk = elementwise::ExpF(top[i] - most);
        float added = 0;
        for (int64_t x = 0; x < seen; ++x) row[x] = elementwise::ExpF(row[x] - most);
        for (int64_t x = 0; x < seen; ++x) added += row[x];
        for (int64_t d = 0; d < s.size; ++d) out[i * s.size + d] *= shrunk;
        sum[i] = sum[i] * shrunk + added;
        top[i] = most;
      }
      AddProduct(rows, columns, s.size, weights, kColumns, 1, values, s.size, out, s.size);
    }
    for (int64_t i = 0; i < rows; ++i) {
      stats[i] = top[i] + std::log(sum[i]);
      Store(out + i * s.size, 1, s, sum[i] == 0 ? 0.0f : 1 / sum[i], o + i * s.token());
    }
  }

  const float scale_;
  const bool causal_;
};

template <typename T>
class AttentionGradKernel : public Kernel {
 public:
  explicit AttentionGradKernel(const KernelConstruction& k)
      : scale_(k.attr<float>("scale")), causal_(k.attr<bool>("causal")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Sizes s, SizesOf(c, true, causal_));
    MG_ASSIGN_OR_RETURN(const Seen seen, Seen::Of(c, s, 6));
    MG_ASSIGN_OR_RETURN(Tensor * dq, c.AllocateOutput(0, s.query()));
    MG_ASSIGN_OR_RETURN(Tensor * dk, c.AllocateOutput(1, s.value()));
    MG_ASSIGN_OR_RETURN(Tensor * dv, c.AllocateOutput(2, s.value()));
    Head head{.query = c.input(0).data<T>(),
              .key = c.input(1).data<T>(),
              .value = c.input(2).data<T>(),
              .output = c.input(3).data<T>(),
              .gradient = c.input(5).data<T>(),
              .statistics = c.input(4).data<float>(),
              .dq = dq->data<T>(),
              .dk = dk->data<T>(),
              .dv = dv->data<T>()};
    const int64_t floats =
        s.rows * (s.size + 1) + 2 * kRows * s.size + 5 * kColumns * s.size + 2 * kRows * kColumns;
    if (s.query().elements() == 0 && s.value().elements() == 0) return Status();
    return ForItems(c, s.n * s.heads, CostOf(s, s.rows, 5), floats,
                    [&](int64_t item, float* scratch) {
                      OfHead(c, s, seen, item / s.heads, item % s.heads, head, scratch);
                    });
  }

 private:
  struct Head {
    const T *query, *key, *value, *output, *gradient;
    const float* statistics;
    T *dq, *dk, *dv;
  };

  void OfHead(const KernelContext& c, const Sizes& s, const Seen& seen, int64_t n, int64_t which,
              const Head& all, float* scratch) const {
    const int64_t of_rows = n * s.rows * s.token() + which * s.size,
                  of_columns = n * s.columns * s.token() + which * s.size;
    const float* const statistics = all.statistics + (n * s.heads + which) * s.rows;
    float* const dq = scratch;
    float* const dots = dq + s.rows * s.size;
    float* const query = dots + s.rows;
    float* const gradient = query + kRows * s.size;
    float* const turned_keys = gradient + kRows * s.size;
    float* const keys = turned_keys + kColumns * s.size;
    float* const turned_values = keys + kColumns * s.size;
    float* const dk = turned_values + kColumns * s.size;
    float* const dv = dk + kColumns * s.size;
    float* const weights = dv + kColumns * s.size;
    float* const dweights = weights + kRows * kColumns;
    std::fill_n(dq, s.rows * s.size, 0.0f);
    for (int64_t i = 0; i < s.rows; ++i) {
      const T *o = all.output + of_rows + i * s.token(),
              *g = all.gradient + of_rows + i * s.token();
      dots[i] = 0;
      for (int64_t d = 0; d < s.size; ++d)
        dots[i] += static_cast<float>(o[d]) * static_cast<float>(g[d]);
    }
    for (int64_t j = 0; j < s.columns; j += kColumns) {
      // Of a block's columns the first ones are seen, and the gradients of all are written.
      const int64_t all_columns = std::min(kColumns, s.columns - j),
                    columns = std::clamp<int64_t>(seen.BySequence(n) - j, 0, all_columns);
      const T *k = all.key + of_columns + j * s.token(),
              *v = all.value + of_columns + j * s.token();
      LoadTurned(k, columns, s, turned_keys);
      LoadTurned(v, columns, s, turned_values);
      Load(k, columns, s, 1, keys);
      std::fill_n(dk, all_columns * s.size, 0.0f);
      std::fill_n(dv, all_columns * s.size, 0.0f);
      for (int64_t i = 0; i < s.rows; i += kRows) {
        if (c.cancelled()) return;
        const int64_t rows = std::min(kRows, s.rows - i);
        if (seen.ByRow(n, i + rows - 1) <= j) continue;
        Load(all.query + of_rows + i * s.token(), rows, s, scale_, query);
        Load(all.gradient + of_rows + i * s.token(), rows, s, 1, gradient);
        std::fill_n(weights, rows * kColumns, 0.0f);
        std::fill_n(dweights, rows * kColumns, 0.0f);
        AddProduct(rows, s.size, columns, query, s.size, 1, turned_keys, kColumns, weights,
                   kColumns);
        AddProduct(rows, s.size, columns, gradient, s.size, 1, turned_values, kColumns, dweights,
                   kColumns);
        for (int64_t r = 0; r < rows; ++r) {
          float *const p = weights + r * kColumns, *const dp = dweights + r * kColumns;
          const int64_t by_row = std::clamp<int64_t>(seen.ByRow(n, i + r) - j, 0, columns);
          for (int64_t x = 0; x < by_row; ++x) {
            p[x] = elementwise::ExpF(p[x] - statistics[i + r]);
            dp[x] = p[x] * (dp[x] - dots[i + r]);
          }
          std::fill(p + by_row, p + columns, 0.0f);
          std::fill(dp + by_row, dp + columns, 0.0f);
        }
        AddProduct(columns, rows, s.size, weights, 1, kColumns, gradient, s.size, dv, s.size);
        AddProduct(columns, rows, s.size, dweights, 1, kColumns, query, s.size, dk, s.size);
        AddProduct(rows, columns, s.size, dweights, kColumns, 1, keys, s.size, dq + i * s.size,
                   s.size);
      }
      Store(dk, all_columns, s, 1, all.dk + of_columns + j * s.token());
      Store(dv, all_columns, s, 1, all.dv + of_columns + j * s.token());
    }
    Store(dq, s.rows, s, scale_, all.dq + of_rows);
  }

  const float scale_;
  const bool causal_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                                 \
  registry->Add<AttentionKernel<T>>({.op = "_FusedAttention", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<AttentionGradKernel<T>>(                                                       \
      {.op = "_FusedAttentionGrad", .types = {{"T", kDTypeOf<T>}}});
  ADD(half)
  ADD(bfloat16)
  ADD(float)
#undef ADD
}

}  // namespace monograph::ops::attention
