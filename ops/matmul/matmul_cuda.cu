// Matrix products. Multiplier asks cuBLASLt first, then cuBLASLt without the fused bias, which
// AddBias then adds; what it refuses, and integers, run as PlainProduct, one thread per element of
// the result. BatchMatMulKernel makes one call of a batch where the operands' strides allow it.
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "executor/kernel.h"
#include "ops/fused_ops.h"
#include "ops/gpu/add_bias.h"
#include "ops/gpu/launch.h"
#include "ops/matmul/cublaslt.h"
#include "ops/matmul/product.h"

namespace monograph::ops::matmul {
namespace {

// One thread per element of the result.
template <typename T>
struct PlainProduct {
  int64_t m, k, n;
  bool ta, tb, relu;
  Divisor columns, matrix;  // n, m * n
  int64_t a_stride, b_stride;
  const T *a, *b, *bias;  // bias: nullptr if there is none
  T* out;

  MG_HD void operator()(int64_t i) const {
    using A = Accumulator<T>;
    const int64_t which = matrix.Divide(i), at = i - which * matrix.divisor();
    const int64_t row = columns.Divide(at), column = at - row * n;
    const T *left = a + which * a_stride + (ta ? row : row * k),
            *right = b + which * b_stride + (tb ? column * k : column);
    const int64_t left_step = ta ? m : 1, right_step = tb ? 1 : n;
    A sum = 0;
    for (int64_t j = 0; j < k; ++j)
      sum += Widen(left[j * left_step]) * Widen(right[j * right_step]);
    if (bias != nullptr) sum += Widen(bias[column]);
    out[i] = Narrow<T>(relu && sum < A(0) ? A(0) : sum);
  }
};

template <typename T>
class Multiplier {
 public:
  // `count` products; strides in elements, 0 repeats an operand.
  Status Run(KernelContext& c, const Product& p, int64_t count, int64_t a_stride, int64_t b_stride,
             const T* a, const T* b, const T* bias, T* out) {
    if (p.m * p.n * count == 0) return Status();
    if constexpr (!std::is_integral_v<T>) {
      if (p.k > 0) {
        CublasCall call{.product = p,
                        .dtype = kDTypeOf<T>,
                        .count = count,
                        .a_stride = a_stride,
                        .b_stride = b_stride,
                        .a = a,
                        .b = b,
                        .bias = bias,
                        .out = out};
        const Status status = cublas_.Run(c, call);
        if (status.code() != Code::kUnimplemented) return status;
        if (p.fused.bias) {
          call.product.fused = {};
          call.bias = nullptr;
          const Status product = cublas_.Run(c, call);
          if (product.ok())
            return AddBias(c, p.m * p.n * count, 1, p.n, p.fused.relu, out, bias, out);
          if (product.code() != Code::kUnimplemented) return product;
        }
      }
    }
    return ForEach(c, p.m * p.n * count,
                   PlainProduct<T>{p.m, p.k, p.n, p.ta, p.tb, p.fused.relu, Divisor(p.n),
                                   Divisor(p.m * p.n), a_stride, b_stride, a, b, bias, out});
  }

 private:
  Cublas cublas_;
};

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
    const Tensor a = c.input(0), b = c.input(1);
    MG_ASSIGN_OR_RETURN(const Product p,
                        ProductOf(a, b, ta_, tb_, fused_, fused_.bias ? &c.input(2) : nullptr));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{p.m, p.n}));
    const T* bias = fused_.bias ? c.input(2).data<T>() : nullptr;
    return multiplier_.Run(c, p, 1, 0, 0, a.data<T>(), b.data<T>(), bias, out->data<T>());
  }

 private:
  bool ta_ = false, tb_ = false;
  FusedOps fused_;
  Multiplier<T> multiplier_;
};

template <typename T>
class BatchMatMulKernel : public Kernel {
 public:
  explicit BatchMatMulKernel(const KernelConstruction& k)
      : ax_(k.attr<bool>("adj_x")), ay_(k.attr<bool>("adj_y")) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const BatchedProduct batched,
                        BatchedProductOf(c.input(0), c.input(1), ax_, ay_));
    Product p = batched.each;
    const T *x = c.input(0).data<T>(), *y = c.input(1).data<T>();
    MG_ASSIGN_OR_RETURN(Tensor * tensor, c.AllocateOutput(0, batched.out));
    T* out = tensor->data<T>();
    const int64_t count = batched.batch.elements(), xs = p.m * p.k, ys = p.k * p.n;
    const bool one_x = batched.x_batch.elements() == 1, one_y = batched.y_batch.elements() == 1;
    if (one_y && !p.ta && batched.x_batch.elements() == count) {  // rows of one product
      p.m *= count;
      return multiplier_.Run(c, p, 1, 0, 0, x, y, nullptr, out);
    }
    if ((one_x || batched.x_batch.elements() == count) &&
        (one_y || batched.y_batch.elements() == count)) {
      return multiplier_.Run(c, p, count, one_x ? 0 : xs, one_y ? 0 : ys, x, y, nullptr, out);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t ix = MatrixOf(i, batched.batch, batched.x_batch),
                    iy = MatrixOf(i, batched.batch, batched.y_batch);
      MG_RETURN_IF_ERROR(
          multiplier_.Run(c, p, 1, 0, 0, x + ix * xs, y + iy * ys, nullptr, out + i * p.m * p.n));
    }
    return Status();
  }

 private:
  const bool ax_, ay_;
  Multiplier<T> multiplier_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                                     \
  registry->Add<MatMulKernel<T>>({.op = "MatMul", .device = kGpu, .types = {{"T", kDTypeOf<T>}}}); \
  for (const char* op : {"BatchMatMul", "BatchMatMulV2"}) {                                        \
    registry->Add<BatchMatMulKernel<T>>(                                                           \
        {.op = op, .device = kGpu, .types = {{"T", kDTypeOf<T>}}});                                \
  }                                                                                                \
  registry->Add<BatchMatMulKernel<T>>(                                                             \
      {.op = "BatchMatMulV3",                                                                      \
       .device = kGpu,                                                                             \
       .types = {{"Ta", kDTypeOf<T>}, {"Tb", kDTypeOf<T>}, {"Tout", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
  MG_INDEX_TYPES(ADD)
#undef ADD
#define ADD(T)                    \
  registry->Add<MatMulKernel<T>>( \
      {.op = "_FusedMatMul", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::matmul
