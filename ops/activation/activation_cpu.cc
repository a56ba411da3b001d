// One kernel for all activations and their gradients: only the loop over elements is compiled for
// each of them, and 16-bit floats go through that of floats, a chunk at a time.
#include <algorithm>
#include <functional>
#include <span>
#include <type_traits>

#include "base/independent_loop.h"
#include "executor/kernel.h"
#include "ops/activation/functors.h"
#include "ops/cpu/kernel_util.h"

namespace monograph::ops::activation {
namespace {

// y = fn(x, alpha), or fn(x, features, alpha) of a gradient x. y may be the same memory as x.
using RowFn = void (*)(const void* x, const void* features, void* y, int64_t n, float alpha);

template <typename T, typename Fn>
void Row(const void* x, const void* features, void* y, int64_t n, float alpha) {
  const T *in = static_cast<const T*>(x), *feature = static_cast<const T*>(features);
  T* out = static_cast<T*>(y);
  MG_INDEPENDENT_LOOP
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_invocable_v<Fn, T, T, float>) {
      out[i] = T(Fn()(in[i], feature[i], alpha));
    } else {
      out[i] = T(Fn()(in[i], alpha));
    }
  }
}

template <typename T16>
void RowAsFloats(RowFn row, const void* x, const void* features, void* y, int64_t n, float alpha) {
  constexpr int64_t kChunk = 256;
  float wide[kChunk], wide_features[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    ToFloats(static_cast<const T16*>(x) + i, wide, count);
    if (features != nullptr) ToFloats(static_cast<const T16*>(features) + i, wide_features, count);
    row(wide, wide_features, wide, count, alpha);
    FromFloats(wide, static_cast<T16*>(y) + i, count);
  }
}

struct Activation {
  const char* op;
  RowFn of_float, of_double, of_int32, of_int64;
};
template <typename Fn>
constexpr Activation ForFloats(const char* op) {
  return {op, &Row<float, Fn>, &Row<double, Fn>, nullptr, nullptr};
}
template <typename Fn>
constexpr Activation ForNumbers(const char* op) {
  return {op, &Row<float, Fn>, &Row<double, Fn>, &Row<int32_t, Fn>, &Row<int64_t, Fn>};
}
constexpr Activation kActivations[] = {
    ForNumbers<ReluFn>("Relu"),          ForNumbers<Relu6Fn>("Relu6"),
    ForNumbers<ReluGradFn>("ReluGrad"),  ForNumbers<Relu6GradFn>("Relu6Grad"),
    ForFloats<LeakyReluFn>("LeakyRelu"), ForFloats<EluFn>("Elu"),
    ForFloats<SoftplusFn>("Softplus"),   ForFloats<LeakyReluGradFn>("LeakyReluGrad"),
    ForFloats<EluGradFn>("EluGrad"),     ForFloats<SoftplusGradFn>("SoftplusGrad"),
    ForFloats<SeluFn>("Selu"),           ForFloats<SeluGradFn>("SeluGrad"),
    ForFloats<SoftsignFn>("Softsign"),   ForFloats<SoftsignGradFn>("SoftsignGrad"),
    ForFloats<GeluFn>("_Gelu"),          ForFloats<GeluGradFn>("_GeluGrad"),
};

class ActivationKernel : public Kernel {
 public:
  explicit ActivationKernel(const KernelConstruction& k)
      : alpha_(k.attrs().GetOr<float>("alpha", 0.f)), dtype_(k.input_dtype(0)) {
    for (const Activation& activation : kActivations) {
      if (k.op() != activation.op) continue;
      row_ = dtype_ == DT_DOUBLE  ? activation.of_double
             : dtype_ == DT_INT32 ? activation.of_int32
             : dtype_ == DT_INT64 ? activation.of_int64
                                  : activation.of_float;
    }
  }

  Status Compute(KernelContext& c) override {
    const bool gradient = c.num_inputs() == 2;
    const Shape shape = c.input(0).shape();
    if (gradient && !(shape == c.input(1).shape())) {
      return InvalidArgument("gradients " + shape.ToString() + " and features " +
                             c.input(1).shape().ToString() + " must have one shape");
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    const char* x = static_cast<const char*>(c.input(0).raw());
    const char* features = gradient ? static_cast<const char*>(c.input(1).raw()) : nullptr;
    char* y = static_cast<char*>(out->raw());
    constexpr int64_t kBlock = 4096;
    const int64_t n = shape.elements();
    const size_t size = DTypeSize(dtype_);
    const auto blocks = [&](int64_t begin, int64_t end) {
      const auto at = static_cast<size_t>(begin * kBlock) * size;
      const int64_t count = std::min(n, end * kBlock) - begin * kBlock;
      const char* feature = gradient ? features + at : nullptr;
      if (dtype_ == DT_HALF) {
        RowAsFloats<half>(row_, x + at, feature, y + at, count, alpha_);
      } else if (dtype_ == DT_BFLOAT16) {
        RowAsFloats<bfloat16>(row_, x + at, feature, y + at, count, alpha_);
      } else {
        row_(x + at, feature, y + at, count, alpha_);
      }
    };
    c.ParallelFor((n + kBlock - 1) / kBlock, gradient ? 1500 : 1000, std::ref(blocks));
    return Status();
  }

 private:
  const float alpha_;
  const DType dtype_;
  RowFn row_ = nullptr;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr DType kNumbers[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64};
  for (const Activation& activation : kActivations) {
    const std::span<const DType> types(kNumbers, activation.of_int32 == nullptr ? 4 : 6);
    AddForTypes<ActivationKernel>(registry, {.op = activation.op}, "T", types);
  }
}

}  // namespace monograph::ops::activation
