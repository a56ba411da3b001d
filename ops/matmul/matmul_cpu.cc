// Float products go to oneDNN's matmul primitive, and those of bfloat16 where the processor has
// instructions for it; tiny ones and other types to plain loops, 16-bit floats as floats. A large
// product is cut into tiles by its shape alone, so that its bits do not depend on the number of
// threads. Between tiles an abort of the step is seen.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <variant>

#include "base/first_failure.h"
#include "executor/kernel.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/onednn_api_cpu.h"
#include "ops/cpu/onednn_cpu.h"
#include "ops/matmul/multiplier_cpu.h"
#include "ops/matmul/product.h"
#include "ops/plan_cache.h"

namespace monograph::ops::matmul {
namespace {

using dnnl::memory;

// c = op(a) op(b), row by row.
template <typename T>
void PlainRows(const KernelContext& context, const Product& p, const T* a, const T* b, T* c,
               int64_t begin, int64_t end) {
  // A row may take long by itself.
  const bool long_rows = p.n * p.k > int64_t{1} << 20;
  for (int64_t i = begin; i < end; ++i) {
    T* row = c + i * p.n;
    if (p.tb) {
      for (int64_t j = 0; j < p.n; ++j) {
        if (long_rows && context.cancelled()) return;
        T sum = 0;
        for (int64_t k = 0; k < p.k; ++k)
          sum += a[p.ta ? k * p.m + i : i * p.k + k] * b[j * p.k + k];
        row[j] = sum;
      }
      continue;
    }
    std::fill_n(row, p.n, T(0));
    for (int64_t k = 0; k < p.k; ++k) {
      if (long_rows && context.cancelled()) return;
      const T factor = a[p.ta ? k * p.m + i : i * p.k + k];
      const T* other = b + k * p.n;
      for (int64_t j = 0; j < p.n; ++j) row[j] += factor * other[j];
    }
  }
}

template <typename T>
void Plain(KernelContext& c, const Product& p, const T* a, const T* b, const T* bias, T* out) {
  const auto rows = [&](int64_t begin, int64_t end) {
    PlainRows(c, p, a, b, out, begin, end);
    if (!p.fused.bias) return;
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        const T value = out[i * p.n + j] + bias[j];
        out[i * p.n + j] = p.fused.relu && value < T(0) ? T(0) : value;
      }
    }
  };
  c.ParallelFor(p.m, std::max<int64_t>(1, p.k * p.n / 2), std::ref(rows));
}

// A product as tiles, each one primitive call. T: float or bfloat16, of which sums are floats.
template <typename T>
class Plan {
 public:
  static Result<std::shared_ptr<Plan>> Make(const Product& p) {
    auto plan = std::make_shared<Plan>(p);
    const int64_t rows[] = {plan->tile_m_, p.m % plan->tile_m_},
                  columns[] = {plan->tile_n_, p.n % plan->tile_n_};
    MG_RETURN_IF_ERROR(onednn::Guarded([&] {
      for (size_t i = 0; i < 2; ++i) {
        for (size_t j = 0; j < 2; ++j) {
          if (rows[i] > 0 && columns[j] > 0) plan->tiles_[i][j].Build(p, rows[i], columns[j]);
        }
      }
    }));
    return plan;
  }

  explicit Plan(const Product& p) : p_(p), tile_m_(p.m), tile_n_(p.n) {
    // Tiles of about a millisecond on one core: small enough to share out, large enough to lose
    // nothing.
    const int64_t tiles = std::clamp<int64_t>(p.flops() / kTileFlops, 1, 32);
    if (p.n >= p.m) {
      tile_n_ = std::min(p.n, RoundUp((p.n + tiles - 1) / tiles, 64));
    } else {
      tile_m_ = std::min(p.m, RoundUp((p.m + tiles - 1) / tiles, 32));
    }
    // Of a very large product they would take seconds each. An abort waits for those that have
    // begun, so they are cut to some 30 ms: by rows where they are narrow, else to squares, of
    // which oneDNN copies least for itself. Their bits stay the same (LargeMatMulTest).
    if (2 * tile_m_ * tile_n_ * p.k <= kMostTileFlops) return;
    const auto most = static_cast<double>(kMostTileFlops) / 2 / static_cast<double>(p.k);
    const double side = std::max(std::sqrt(most), most / static_cast<double>(p.m));
    if (static_cast<double>(tile_n_) > 2 * side)
      tile_n_ = std::min(p.n, RoundUp(std::max<int64_t>(1, static_cast<int64_t>(side)), 64));
    tile_m_ = std::min(p.m, RoundUp(static_cast<int64_t>(most) / tile_n_ + 1, 32));
  }

  Status Run(KernelContext& c, const T* a, const T* b, const T* bias, T* out) {
    const int64_t tiles_n = (p_.n + tile_n_ - 1) / tile_n_,
                  tiles_m = (p_.m + tile_m_ - 1) / tile_m_;
    FirstFailure failure;
    const auto body = [&](int64_t begin, int64_t end) {
      onednn::SingleThread single;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t i = t / tiles_n * tile_m_, j = t % tiles_n * tile_n_;
        if (c.cancelled()) return;
        Tile& tile = tiles_[i + tile_m_ <= p_.m ? 0 : 1][j + tile_n_ <= p_.n ? 0 : 1];
        failure.Update(tile.Run(a + (p_.ta ? i : i * p_.k), b + (p_.tb ? j * p_.k : j),
                                bias == nullptr ? nullptr : bias + j, out + i * p_.n + j));
      }
    };
    c.ParallelFor(tiles_m * tiles_n, 2 * tile_m_ * tile_n_ * p_.k / 60, std::ref(body));
    return failure.status();
  }

 private:
  static constexpr int64_t kTileFlops = 160'000'000;
  static constexpr int64_t kMostTileFlops = 4'000'000'000;
  static constexpr int64_t kRowsToPack = 64;
  static int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

  // One size of tile.
  struct Tile {
    dnnl::matmul primitive;
    int64_t rows = 0, width = 0;  // of the tile
    memory::desc a, packed_a, b, packed_b, bias, out, scratchpad;
    bool has_bias = false;
    bool relu = false;    // done here: oneDNN's fused one makes 0 of a NaN
    int64_t columns = 0;  // of a dense result that is copied to rows of length `row`; 0: none is
    int64_t row = 0;
    onednn::FramePool<onednn::Frame> frames;

    void Build(const Product& p, int64_t m, int64_t n) {
      constexpr auto kType = onednn::kTypeOf<T>;
      rows = m, width = n;
      a = memory::desc({m, p.k}, kType, p.ta ? memory::dims{1, p.m} : memory::dims{p.k, 1});
      // By tiles of bfloat16 oneDNN takes a transposed matrix only whole: rows of one are
      // transposed first. 0.5 ms instead of 1.1 for 800 of the 3136 rows times 100x1024.
      const bool turns =
          std::is_same_v<T, bfloat16> && p.ta && m < p.m && onednn::HasBfloat16Tiles();
      packed_a = turns ? memory::desc({m, p.k}, kType, memory::dims{p.k, 1}) : a;
      b = memory::desc({p.k, n}, kType, p.tb ? memory::dims{1, p.k} : memory::dims{p.n, 1});
      // oneDNN's best kernel wants dense matrices. Columns of a transposed b are; then it pays to
      // make those of the result so, too, and copy them to their place. Where b is not transposed,
      // they are packed, if there are rows enough to pay for it: 5.8 ms instead of 7.7 for
      // 100x3136 times 3136x1024.
      const bool pack = n < p.n && !p.tb && m >= kRowsToPack && onednn::IntelAvx512();
      columns = n < p.n && (p.tb || pack) ? n : 0;
      row = p.n;
      out = memory::desc({m, n}, kType, memory::dims{columns > 0 ? n : p.n, 1});
      has_bias = p.fused.bias;
      relu = p.fused.relu;
      const dnnl::primitive_attr attr = onednn::UserScratchpad();
      if (has_bias) bias = memory::desc({1, n}, kType, memory::format_tag::ab);
      const memory::desc any({p.k, n}, kType, memory::format_tag::any), &given = pack ? any : b;
      const dnnl::matmul::primitive_desc desc =
          has_bias
              ? onednn::Describe<dnnl::matmul>(onednn::Engine(), attr, packed_a, given, bias, out)
              : onednn::Describe<dnnl::matmul>(onednn::Engine(), attr, packed_a, given, out);
      packed_b = desc.weights_desc();
      scratchpad = desc.scratchpad_desc();
      primitive = dnnl::matmul(desc);
    }

    Status Run(const T* a_data, const T* b_data, const T* bias_data, T* out_data) {
      std::unique_ptr<onednn::Frame> frame;
      MG_RETURN_IF_ERROR(onednn::Guarded([&] {
        frame = frames.Take([&] {
          auto made = std::make_unique<onednn::Frame>();
          const int given_a = made->Bound(a), given_b = made->Bound(b);
          const int io = columns > 0 ? made->Owned(out) : made->Bound(out);
          const int i_bias = has_bias ? made->Bound(bias) : -1;
          const auto packed = [&](int given, const memory::desc& from, const memory::desc& to) {
            if (to == from) return given;
            const int own = made->Owned(to);
            made->AddReorder(given, own);
            return own;
          };
          const int ia = packed(given_a, a, packed_a), ib = packed(given_b, b, packed_b);
          if (has_bias) {
            made->Add(primitive,
                      {{DNNL_ARG_SRC, ia},
                       {DNNL_ARG_WEIGHTS, ib},
                       {DNNL_ARG_DST, io},
                       {DNNL_ARG_BIAS, i_bias}},
                      scratchpad);
          } else {
            made->Add(primitive, {{DNNL_ARG_SRC, ia}, {DNNL_ARG_WEIGHTS, ib}, {DNNL_ARG_DST, io}},
                      scratchpad);
          }
          return made;
        });
      }));
      frame->Bind(0, a_data);
      frame->Bind(1, b_data);
      if (columns == 0) frame->Bind(2, out_data);
      if (has_bias) frame->Bind(3, bias_data);
      Status status = frame->Run();
      if (columns > 0) {
        const auto* dense = static_cast<const T*>(frame->data(2));
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(dense + i * columns, columns, out_data + i * row);
        }
      }
      if (relu) {
        for (int64_t i = 0; i < rows; ++i) ReluInPlace(out_data + i * row, width);
      }
      frames.Give(std::move(frame));
      return status;
    }
  };

  const Product p_;
  int64_t tile_m_, tile_n_;
  Tile tiles_[2][2];  // whole ones and those at the end: of rows, of columns
};

template <typename T>
class OnednnProduct {
 public:
  // Whether oneDNN computes it: neither empty nor tiny, and by instructions of the processor.
  static bool Takes(const Product& p) {
    // A primitive call costs about as much as this many multiplications. oneDNN keeps the lengths
    // of rows in 32 bits.
    constexpr int64_t kLongest = std::numeric_limits<int32_t>::max();
    if (p.flops() <= 2048 || p.k == 0 || std::max({p.m, p.k, p.n}) > kLongest) return false;
    return !std::is_same_v<T, bfloat16> || onednn::HasBfloat16();
  }

  // REQUIRES: Takes(p).
  Status Run(KernelContext& c, const Product& p, const T* a, const T* b, const T* bias, T* out) {
    MG_ASSIGN_OR_RETURN(std::shared_ptr<Plan<T>> plan,
                        plans_.Get(p, [&] { return Plan<T>::Make(p); }));
    return plan->Run(c, a, b, bias, out);
  }

 private:
  PlanCache<Product, Plan<T>> plans_;
};

// What the kernel of T has for products of bfloat16.
template <typename T>
using Bfloat16Product =
    std::conditional_t<std::is_same_v<T, bfloat16>, OnednnProduct<bfloat16>, std::monostate>;

}  // namespace

template <typename T>
struct Multiplier<T>::Float {
  OnednnProduct<float> product;
};

template <typename T>
Multiplier<T>::Multiplier() : float_(std::make_unique<Float>()) {}
template <typename T>
Multiplier<T>::~Multiplier() = default;

template <typename T>
Status Multiplier<T>::Run(KernelContext& c, const Product& p, const T* a, const T* b, const T* bias,
                          T* out) {
  if (p.m == 0 || p.n == 0) return Status();
  if constexpr (std::is_same_v<T, float>) {
    if (OnednnProduct<float>::Takes(p)) return float_->product.Run(c, p, a, b, bias, out);
  }
  Plain(c, p, a, b, bias, out);
  return Status();
}

template class Multiplier<float>;
template class Multiplier<double>;
template class Multiplier<int32_t>;
template class Multiplier<int64_t>;

namespace {

// MatMul and _FusedMatMul.
template <typename T>
class MatMulKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<MatMulKernel>();
    kernel->ta_ = k.attr<bool>("transpose_a");
    kernel->tb_ = k.attr<bool>("transpose_b");
    MG_ASSIGN_OR_RETURN(kernel->fused_, FusedOps::Parse(k.attrs()));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    const Tensor &a = c.input(0), &b = c.input(1);
    MG_ASSIGN_OR_RETURN(const Product p,
                        ProductOf(a, b, ta_, tb_, fused_, fused_.bias ? &c.input(2) : nullptr));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{p.m, p.n}));
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (OnednnProduct<T>::Takes(p)) {
        return bfloat16_.Run(c, p, a.data<T>(), b.data<T>(),
                             fused_.bias ? c.input(2).data<T>() : nullptr, out->data<T>());
      }
    }
    using C = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const Tensor fa, ToFloat<T>(c, a));
    MG_ASSIGN_OR_RETURN(const Tensor fb, ToFloat<T>(c, b));
    Tensor bias, target = *out;
    if (fused_.bias) {
      MG_ASSIGN_OR_RETURN(bias, ToFloat<T>(c, c.input(2)));
    }
    if constexpr (kIs16Bit<T>) {
      MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(DT_FLOAT, out->shape()));
    }
    const C* bias_data = fused_.bias ? bias.data<C>() : nullptr;
    MG_RETURN_IF_ERROR(
        multiplier_.Run(c, p, fa.data<C>(), fb.data<C>(), bias_data, target.data<C>()));
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  bool ta_ = false, tb_ = false;
  FusedOps fused_;
  Multiplier<Accumulator<T>> multiplier_;
  Bfloat16Product<T> bfloat16_;
};

template <typename T>
class BatchMatMulKernel : public Kernel {
 public:
  explicit BatchMatMulKernel(const KernelConstruction& k)
      : ax_(k.attr<bool>("adj_x")), ay_(k.attr<bool>("adj_y")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const BatchedProduct batched,
                        BatchedProductOf(c.input(0), c.input(1), ax_, ay_));
    const Product& p = batched.each;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, batched.out));
    if (out->elements() == 0) return Status();  // of any number of matrices
    const auto for_each = [&](const auto& multiply) -> Status {
      const int64_t count = batched.batch.elements();
      for (int64_t i = 0; i < count && !c.cancelled(); ++i) {
        MG_RETURN_IF_ERROR(multiply(MatrixOf(i, batched.batch, batched.x_batch) * p.m * p.k,
                                    MatrixOf(i, batched.batch, batched.y_batch) * p.k * p.n,
                                    i * p.m * p.n));
      }
      return Status();
    };
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (OnednnProduct<T>::Takes(p)) {
        return for_each([&](int64_t x, int64_t y, int64_t to) {
          return bfloat16_.Run(c, p, c.input(0).data<T>() + x, c.input(1).data<T>() + y, nullptr,
                               out->data<T>() + to);
        });
      }
    }
    using C = Accumulator<T>;
    MG_ASSIGN_OR_RETURN(const Tensor fx, ToFloat<T>(c, c.input(0)));
    MG_ASSIGN_OR_RETURN(const Tensor fy, ToFloat<T>(c, c.input(1)));
    Tensor target = *out;
    if constexpr (kIs16Bit<T>) {
      MG_ASSIGN_OR_RETURN(target, c.AllocateTemp(DT_FLOAT, out->shape()));
    }
    MG_RETURN_IF_ERROR(for_each([&](int64_t x, int64_t y, int64_t to) {
      return multiplier_.Run(c, p, fx.data<C>() + x, fy.data<C>() + y, nullptr,
                             target.data<C>() + to);
    }));
    if constexpr (kIs16Bit<T>) FromFloat<T>(c, target, out);
    return Status();
  }

 private:
  const bool ax_, ay_;
  Multiplier<Accumulator<T>> multiplier_;
  Bfloat16Product<T> bfloat16_;
};

// SparseMatMul: float and bfloat16 in any combination, to float. That there are many zeros is said
// by attributes, and not made use of.
class SparseMatMulKernel : public Kernel {
 public:
  explicit SparseMatMulKernel(const KernelConstruction& k)
      : ta_(k.attr<bool>("transpose_a")), tb_(k.attr<bool>("transpose_b")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const Product p,
                        ProductOf(c.input(0), c.input(1), ta_, tb_, FusedOps(), nullptr));
    const auto as_float = [&](const Tensor& x) {
      return x.dtype() == DT_BFLOAT16 ? ToFloat<bfloat16>(c, x) : Result<Tensor>(x);
    };
    MG_ASSIGN_OR_RETURN(const Tensor a, as_float(c.input(0)));
    MG_ASSIGN_OR_RETURN(const Tensor b, as_float(c.input(1)));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{p.m, p.n}));
    return multiplier_.Run(c, p, a.data<float>(), b.data<float>(), nullptr, out->data<float>());
  }

 private:
  const bool ta_, tb_;
  Multiplier<float> multiplier_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                      \
  registry->Add<MatMulKernel<T>>({.op = "MatMul", .types = {{"T", kDTypeOf<T>}}});  \
  for (const char* op : {"BatchMatMul", "BatchMatMulV2"})                           \
    registry->Add<BatchMatMulKernel<T>>({.op = op, .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<BatchMatMulKernel<T>>(                                              \
      {.op = "BatchMatMulV3",                                                       \
       .types = {{"Ta", kDTypeOf<T>}, {"Tb", kDTypeOf<T>}, {"Tout", kDTypeOf<T>}}});
  MG_NUMBER_TYPES(ADD)
#undef ADD
  registry->Add<SparseMatMulKernel>({.op = "SparseMatMul"});
  RegisterEinsum(registry);
#define ADD(T) \
  registry->Add<MatMulKernel<T>>({.op = "_FusedMatMul", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::matmul
