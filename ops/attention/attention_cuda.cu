// Attention and its gradient on GPUs: cuDNN's fused kernels for 16-bit floats; for floats, and what
// cuDNN refuses, plain kernels, which hold the weights of all pairs of tokens in memory. These are
// products with one thread per element of the result, at whatever strides, and rows between them.
// cuDNN writes nothing past a sequence's length: what it leaves is set to 0 behind it.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "executor/kernel.h"
#include "ops/attention/cudnn_attention.h"
#include "ops/attention/sizes.h"
#include "ops/gpu/launch.h"
#include "ops/gpu/vectors.h"

namespace monograph::ops::attention {
namespace {

// A matrix for each head of each sequence: strides in elements.
template <typename T>
struct Matrices {
  T* data;
  int64_t n, head, row, column;
  Matrices Turned() const { return {data, n, head, column, row}; }
};
template <typename T>
Matrices<T> Tokens(const Sizes& s, int64_t tokens, T* data) {
  return {data, tokens * s.token(), s.size, s.token(), 1};
}

// out = factor * a b
template <typename A, typename B, typename C>
struct Product {
  int64_t inner;
  float factor;
  Divisor heads, rows, columns;
  Matrices<const A> a;
  Matrices<const B> b;
  Matrices<C> out;

  MG_HD void operator()(int64_t i) const {
    const int64_t above = columns.Divide(i), column = i - above * columns.divisor();
    const int64_t which = rows.Divide(above), row = above - which * rows.divisor();
    const int64_t n = heads.Divide(which), head = which - n * heads.divisor();
    const A* left = a.data + n * a.n + head * a.head + row * a.row;
    const B* right = b.data + n * b.n + head * b.head + column * b.column;
    float sum = 0;
    for (int64_t k = 0; k < inner; ++k) sum += Widen(left[k * a.column]) * Widen(right[k * b.row]);
    out.data[n * out.n + head * out.head + row * out.row + column * out.column] =
        Narrow<C>(factor * sum);
  }
};

// How many columns a row sees, of all heads of all sequences.
struct Seen {
  Divisor of_sequence, rows;  // of_sequence: the rows of all heads
  int64_t columns;
  bool causal;
  const int32_t* lengths;  // or nullptr

  MG_HD int64_t operator()(int64_t row) const {
    int64_t seen = columns;
    if (lengths != nullptr) {
      const int64_t length = lengths[of_sequence.Divide(row)];
      seen = length < 0 ? 0 : length < columns ? length : columns;
    }
    if (!causal) return seen;
    const int64_t last = row - rows.Divide(row) * rows.divisor() + 1;
    return seen < last ? seen : last;
  }
};
Seen SeenOf(const Sizes& s, const int32_t* lengths) {
  return {Divisor(s.heads * s.rows), Divisor(s.rows), s.columns, s.causal, lengths};
}

// Scores to weights, in place, and log(sum(exp(scores))) of each row.
struct Weights {
  Seen seen_by;
  int64_t columns;
  float *scores, *statistics;

  MG_HD void operator()(int64_t row) const {
    const int64_t seen = seen_by(row);
    float* const at = scores + row * columns;
    for (int64_t j = seen; j < columns; ++j) at[j] = 0;
    if (seen == 0) {
      statistics[row] = -INFINITY;
      return;
    }
    float top = at[0];
    for (int64_t j = 1; j < seen; ++j)
      if (top < at[j]) top = at[j];
    float sum = 0;
    for (int64_t j = 0; j < seen; ++j) sum += std::exp(at[j] - top);
    for (int64_t j = 0; j < seen; ++j) at[j] = std::exp(at[j] - top) / sum;
    statistics[row] = top + std::log(sum);
  }
};

// Row by row the sum of gradient * output, in the order of statistics.
template <typename T>
struct Dots {
  int64_t size, rows, heads;
  const T *output, *gradient;
  float* dots;

  MG_HD void operator()(int64_t i) const {
    const int64_t which = i / rows, row = i - which * rows;
    const int64_t n = which / heads, head = which - n * heads;
    const int64_t at = ((n * rows + row) * heads + head) * size;
    float sum = 0;
    for (int64_t d = 0; d < size; ++d) sum += Widen(output[at + d]) * Widen(gradient[at + d]);
    dots[i] = sum;
  }
};

// Of scores and gradient value^T, in place: weights and the scores' gradient.
struct ScoresGradient {
  Seen seen_by;
  Divisor columns;
  const float *statistics, *dots;
  float *weights, *dweights;

  MG_HD void operator()(int64_t i) const {
    const int64_t row = columns.Divide(i);
    const bool seen = i - row * columns.divisor() < seen_by(row);
    const float p = seen ? std::exp(weights[i] - statistics[row]) : 0;
    weights[i] = p;
    dweights[i] = seen ? p * (dweights[i] - dots[row]) : 0;
  }
};

// What cuDNN is told of each sequence: all rows, and at least one column.
struct Counts {
  int32_t rows, columns;
  const int32_t* lengths;
  int32_t *row_counts, *column_counts;

  MG_HD void operator()(int64_t i) const {
    const int32_t length = lengths[i];
    row_counts[i] = rows;
    column_counts[i] = length < 1 ? 1 : length < columns ? length : columns;
  }
};

// Zeros for tokens past their sequence's length, or, with `whole`, for sequences of none.
template <typename T>
struct ZerosBehind {
  static constexpr int kN = 8;
  bool whole;
  Divisor packs, tokens;  // packs of a token, tokens of a sequence
  const int32_t* lengths;
  T* data;

  MG_HD void operator()(int64_t i) const {
    const int64_t token = packs.Divide(i), sequence = tokens.Divide(token);
    const int64_t place = token - sequence * tokens.divisor(), length = lengths[sequence];
    if (whole ? length > 0 : place < length) return;
    StorePack<T, kN>(data + i * kN, {});
  }
};
// REQUIRES: the size of heads is a multiple of 8, as cuDNN wants it, too.
template <typename T>
Status WriteZerosBehind(KernelContext& c, const Sizes& s, const int32_t* lengths, bool whole,
                        int64_t tokens, T* data) {
  const int64_t packs = s.token() / ZerosBehind<T>::kN;
  return ForEach(c, s.n * tokens * packs,
                 ZerosBehind<T>{whole, Divisor(packs), Divisor(tokens), lengths, data});
}

template <typename A, typename B, typename C>
Status Multiply(KernelContext& c, const Sizes& s, int64_t rows, int64_t inner, int64_t columns,
                float factor, const Matrices<A>& a, const Matrices<B>& b, const Matrices<C>& out) {
  using Left = std::remove_const_t<A>;
  using Right = std::remove_const_t<B>;
  if (s.n * s.heads * rows * columns == 0) return Status();
  return ForEach(c, s.n * s.heads * rows * columns,
                 Product<Left, Right, C>{inner,
                                         factor,
                                         Divisor(s.heads),
                                         Divisor(rows),
                                         Divisor(columns),
                                         {a.data, a.n, a.head, a.row, a.column},
                                         {b.data, b.n, b.head, b.row, b.column},
                                         out});
}

// The weights of all pairs.
Matrices<float> Pairs(const Sizes& s, float* data) {
  return {data, s.heads * s.rows * s.columns, s.rows * s.columns, s.columns, 1};
}

const int32_t* LengthsOf(const KernelContext& c, const Sizes& s) {
  return s.with_lengths ? c.input(c.num_inputs() - 1).data<int32_t>() : nullptr;
}

// `call` by cuDNN, without what it needs to know of lengths, which are added. Unimplemented if it
// has no engine.
Status RunCudnn(KernelContext& c, CudnnAttention& cudnn, CudnnCall call, const int32_t* lengths) {
  const Sizes& s = call.sizes;
  if (!s.with_lengths) return cudnn.Run(c, call);
  if (s.size % 8 != 0) return Unimplemented("cuDNN's attention wants heads of 8 elements each");
  const int64_t aligned = (s.n + 3) / 4 * 4;
  MG_ASSIGN_OR_RETURN(Tensor counts, c.AllocateTemp(DT_INT32, Shape{2, aligned}));
  int32_t *const rows = counts.data<int32_t>(), *const columns = rows + aligned;
  MG_RETURN_IF_ERROR(ForEach(c, s.n,
                             Counts{static_cast<int32_t>(s.rows), static_cast<int32_t>(s.columns),
                                    lengths, rows, columns}));
  call.row_counts = rows;
  call.lengths = columns;
  return cudnn.Run(c, call);
}

template <typename T>
class AttentionKernel : public Kernel {
 public:
  explicit AttentionKernel(const KernelConstruction& k)
      : scale_(k.attr<float>("scale")), causal_(k.attr<bool>("causal")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Sizes s, SizesOf(c, false, causal_));
    const int32_t* const lengths = LengthsOf(c, s);
    const T *q = c.input(0).template data<T>(), *k = c.input(1).template data<T>(),
            *v = c.input(2).template data<T>();
    MG_ASSIGN_OR_RETURN(Tensor * output, c.AllocateOutput(0, s.query()));
    MG_ASSIGN_OR_RETURN(Tensor * statistics, c.AllocateOutput(1, s.statistics()));
    if (s.query().elements() == 0 || s.columns == 0) {
      MG_RETURN_IF_ERROR(DeviceZero(c, statistics->raw(), statistics->bytes()));
      return DeviceZero(c, output->raw(), output->bytes());
    }
    if constexpr (kIs16Bit<T>) {
      const Status fused = RunCudnn(c, cudnn_,
                                    {.dtype = kDTypeOf<T>,
                                     .sizes = s,
                                     .scale = scale_,
                                     .query = q,
                                     .key = k,
                                     .value = v,
                                     .output = output->raw(),
                                     .statistics = statistics->raw()},
                                    lengths);
      if (fused.ok() && s.with_lengths)
        return WriteZerosBehind(c, s, lengths, true, s.rows, output->template data<T>());
      if (fused.code() != Code::kUnimplemented) return fused;
    }
    MG_ASSIGN_OR_RETURN(Tensor between,
                        c.AllocateTemp(DT_FLOAT, Shape{s.n, s.heads, s.rows, s.columns}));
    float* const pairs = between.data<float>();
    MG_RETURN_IF_ERROR(Multiply(c, s, s.rows, s.size, s.columns, scale_, Tokens(s, s.rows, q),
                                Tokens(s, s.columns, k).Turned(), Pairs(s, pairs)));
    MG_RETURN_IF_ERROR(
        ForEach(c, s.statistics().elements(),
                Weights{SeenOf(s, lengths), s.columns, pairs, statistics->template data<float>()}));
    return Multiply(c, s, s.rows, s.columns, s.size, 1, Pairs(s, pairs), Tokens(s, s.columns, v),
                    Tokens(s, s.rows, output->template data<T>()));
  }

 private:
  const float scale_;
  const bool causal_;
  CudnnAttention cudnn_;
};

template <typename T>
class AttentionGradKernel : public Kernel {
 public:
  explicit AttentionGradKernel(const KernelConstruction& k)
      : scale_(k.attr<float>("scale")), causal_(k.attr<bool>("causal")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Sizes s, SizesOf(c, true, causal_));
    const int32_t* const lengths = LengthsOf(c, s);
    const T *q = c.input(0).template data<T>(), *k = c.input(1).template data<T>(),
            *v = c.input(2).template data<T>(), *o = c.input(3).template data<T>(),
            *g = c.input(5).template data<T>();
    const Tensor statistics = c.input(4);
    MG_ASSIGN_OR_RETURN(Tensor * dq, c.AllocateOutput(0, s.query()));
    MG_ASSIGN_OR_RETURN(Tensor * dk, c.AllocateOutput(1, s.value()));
    MG_ASSIGN_OR_RETURN(Tensor * dv, c.AllocateOutput(2, s.value()));
    if (s.query().elements() == 0 || s.value().elements() == 0) {
      for (Tensor* empty : {dq, dk, dv})
        MG_RETURN_IF_ERROR(DeviceZero(c, empty->raw(), empty->bytes()));
      return Status();
    }
    if constexpr (kIs16Bit<T>) {
      const Status fused = RunCudnn(c, cudnn_,
                                    {.backward = true,
                                     .dtype = kDTypeOf<T>,
                                     .sizes = s,
                                     .scale = scale_,
                                     .query = q,
                                     .key = k,
                                     .value = v,
                                     .output = const_cast<T*>(o),
                                     .statistics = const_cast<void*>(statistics.raw()),
                                     .gradient = g,
                                     .dq = dq->raw(),
                                     .dk = dk->raw(),
                                     .dv = dv->raw()},
                                    lengths);
      if (fused.ok() && s.with_lengths) {
        MG_RETURN_IF_ERROR(WriteZerosBehind(c, s, lengths, true, s.rows, dq->template data<T>()));
        for (Tensor* of_columns : {dk, dv}) {
          MG_RETURN_IF_ERROR(
              WriteZerosBehind(c, s, lengths, false, s.columns, of_columns->template data<T>()));
        }
      }
      if (fused.code() != Code::kUnimplemented) return fused;
    }
    const Shape shape{s.n, s.heads, s.rows, s.columns};
    MG_ASSIGN_OR_RETURN(Tensor weights, c.AllocateTemp(DT_FLOAT, shape));
    MG_ASSIGN_OR_RETURN(Tensor dweights, c.AllocateTemp(DT_FLOAT, shape));
    MG_ASSIGN_OR_RETURN(Tensor sums, c.AllocateTemp(DT_FLOAT, s.statistics()));
    const auto rows = Tokens(s, s.rows, q), gradient = Tokens(s, s.rows, g);
    const auto keys = Tokens(s, s.columns, k), values = Tokens(s, s.columns, v);
    const auto p = Pairs(s, weights.data<float>()), dp = Pairs(s, dweights.data<float>());
    MG_RETURN_IF_ERROR(Multiply(c, s, s.rows, s.size, s.columns, scale_, rows, keys.Turned(), p));
    MG_RETURN_IF_ERROR(Multiply(c, s, s.rows, s.size, s.columns, 1, gradient, values.Turned(), dp));
    MG_RETURN_IF_ERROR(
        ForEach(c, s.statistics().elements(),
                Dots<T>{s.size, s.rows, s.heads, o, g, sums.template data<float>()}));
    MG_RETURN_IF_ERROR(
        ForEach(c, shape.elements(),
                ScoresGradient{SeenOf(s, lengths), Divisor(s.columns), statistics.data<float>(),
                               sums.data<float>(), p.data, dp.data}));
    MG_RETURN_IF_ERROR(Multiply(c, s, s.rows, s.columns, s.size, scale_, dp, keys,
                                Tokens(s, s.rows, dq->template data<T>())));
    MG_RETURN_IF_ERROR(Multiply(c, s, s.columns, s.rows, s.size, scale_, dp.Turned(), rows,
                                Tokens(s, s.columns, dk->template data<T>())));
    return Multiply(c, s, s.columns, s.rows, s.size, 1, p.Turned(), gradient,
                    Tokens(s, s.columns, dv->template data<T>()));
  }

 private:
  const float scale_;
  const bool causal_;
  CudnnAttention cudnn_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                   \
  registry->Add<AttentionKernel<T>>(                                             \
      {.op = "_FusedAttention", .device = kGpu, .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<AttentionGradKernel<T>>(                                         \
      {.op = "_FusedAttentionGrad", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  ADD(half)
  ADD(bfloat16)
  ADD(float)
#undef ADD
}

}  // namespace monograph::ops::attention
