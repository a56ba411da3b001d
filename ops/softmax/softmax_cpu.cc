#include <algorithm>
#include <cmath>
#include <functional>

#include "executor/kernel.h"
#include "ops/cpu/float_view_cpu.h"

namespace monograph::ops::softmax {
namespace {

template <typename T, bool kLog>
class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    if (shape.rank() < 1)
      return InvalidArgument("the logits need at least one dimension, got a scalar");
    const int64_t classes = shape[shape.rank() - 1];
    const int64_t rows = classes == 0 ? 0 : shape.elements() / classes;
    const T* x = c.input(0).data<T>();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    T* y = out->data<T>();
    using A = Accumulator<T>;
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in = x + row * classes;
        T* to = y + row * classes;
        A top = static_cast<A>(in[0]);
        for (int64_t k = 1; k < classes; ++k) top = std::max(top, static_cast<A>(in[k]));
        A sum = 0;
        if constexpr (kLog) {
          for (int64_t k = 0; k < classes; ++k) sum += std::exp(static_cast<A>(in[k]) - top);
          const A log_sum = std::log(sum);
          for (int64_t k = 0; k < classes; ++k) to[k] = T(static_cast<A>(in[k]) - top - log_sum);
        } else if constexpr (kIs16Bit<T>) {  // an exp more rather than rounding twice
          for (int64_t k = 0; k < classes; ++k) sum += std::exp(static_cast<A>(in[k]) - top);
          for (int64_t k = 0; k < classes; ++k)
            to[k] = T(std::exp(static_cast<A>(in[k]) - top) / sum);
        } else {
          for (int64_t k = 0; k < classes; ++k) {
            to[k] = std::exp(in[k] - top);
            sum += to[k];
          }
          const A scale = A(1) / sum;
          for (int64_t k = 0; k < classes; ++k) to[k] *= scale;
        }
      }
    };
    c.ParallelFor(rows, 10 * classes, std::ref(body));
    return Status();
  }
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                              \
  registry->Add<SoftmaxKernel<T, false>>({.op = "Softmax", .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<SoftmaxKernel<T, true>>({.op = "LogSoftmax", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::softmax
