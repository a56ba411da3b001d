#include <algorithm>
#include <cmath>
#include <functional>

#include "executor/kernel.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/pieces_cpu.h"

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
        // fn(begin, end) over the classes; a row may be very long.
        const auto classwise = [&](const auto& fn) { return InPieces(c, classes, fn); };
        A top = static_cast<A>(in[0]), sum = 0;
        classwise([&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k) top = std::max(top, static_cast<A>(in[k]));
        });
        classwise([&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k) {
            const A value = std::exp(static_cast<A>(in[k]) - top);
            // 16-bit floats would be rounded twice: for these exp is called once more.
            if constexpr (!kLog && !kIs16Bit<T>) to[k] = value;
            sum += value;
          }
        });
        if constexpr (kLog) {
          const A log_sum = std::log(sum);
          classwise([&](int64_t first, int64_t last) {
            for (int64_t k = first; k < last; ++k) to[k] = T(static_cast<A>(in[k]) - top - log_sum);
          });
        } else if constexpr (kIs16Bit<T>) {
          classwise([&](int64_t first, int64_t last) {
            for (int64_t k = first; k < last; ++k)
              to[k] = T(std::exp(static_cast<A>(in[k]) - top) / sum);
          });
        } else {
          const A scale = A(1) / sum;
          classwise([&](int64_t first, int64_t last) {
            for (int64_t k = first; k < last; ++k) to[k] *= scale;
          });
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
