#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/reduce/around.h"
#include "ops/reduce/register.h"

namespace monograph::ops::reduce {
namespace {

// `out` is of int32 or int64.
template <typename T, bool kMax>
void ArgRows(KernelContext& c, const Around& a, const T* x, Tensor* out) {
  void* const to = out->raw();
  const bool narrow = out->dtype() == DT_INT32;
  c.ParallelFor(a.outer, 1 + a.n * a.inner, [=, &c](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (int64_t k = 0; k < a.inner; ++k) {
        const T* column = x + o * a.n * a.inner + k;
        int64_t best = 0;
        T value = column[0];
        InPieces(c, a.n, [&](int64_t first, int64_t last) {
          for (int64_t i = std::max<int64_t>(first, 1); i < last; ++i) {
            const T other = column[i * a.inner];
            if (kMax ? other > value : other < value) best = i, value = other;
          }
        });
        const int64_t at = o * a.inner + k;
        if (narrow) {
          static_cast<int32_t*>(to)[at] = static_cast<int32_t>(best);
        } else {
          static_cast<int64_t*>(to)[at] = best;
        }
      }
    }
  });
}

template <typename T, bool kMax>
class ArgKernel : public Kernel {
 public:
  explicit ArgKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ArgPlan plan, PlanArg(c.input(0).shape(), c.input(1)));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    if (out->elements() == 0) return Status();
    ArgRows<T, kMax>(c, plan.around, c.input(0).data<T>(), out);
    return Status();
  }
};

// What a scan begins with, and how it goes on.
template <typename A>
struct SumStep {
  static constexpr A kStart = A(0);
  A operator()(A total, A value) const { return total + value; }
};
template <typename A>
struct ProductStep {
  static constexpr A kStart = A(1);
  A operator()(A total, A value) const { return total * value; }
};
// The logarithm of a sum, from logarithms.
template <typename A>
struct LogSumStep {
  static constexpr A kStart = -std::numeric_limits<A>::infinity();
  A operator()(A total, A value) const {
    if (total < value) std::swap(total, value);
    if (total == value) return total + std::numbers::ln2_v<A>;  // also of infinities
    return total + std::log1p(std::exp(value - total));
  }
};

template <typename T, template <typename> typename Step>
class ScanKernel : public Kernel {
 public:
  explicit ScanKernel(const KernelConstruction& k)
      : exclusive_(k.attr<bool>("exclusive")), reverse_(k.attr<bool>("reverse")) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(1), shape.rank()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    if (out->elements() == 0) return Status();
    const Around a(shape, axis);
    const T* x = c.input(0).data<T>();
    T* y = out->data<T>();
    const int64_t first = reverse_ ? a.n - 1 : 0, step = reverse_ ? -1 : 1;
    c.ParallelFor(a.outer, 1 + a.n * a.inner, [=, this, &c](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t k = 0; k < a.inner; ++k) {
          using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
          Wide total = Step<Wide>::kStart;
          InPieces(c, a.n, [&](int64_t from, int64_t to) {
            for (int64_t i = from; i < to; ++i) {
              const int64_t at = (o * a.n + first + i * step) * a.inner + k;
              const Wide value = x[at];
              const Wide next = Step<Wide>()(total, value);
              y[at] = T(exclusive_ ? total : next);
              total = next;
            }
          });
        }
      }
    });
    return Status();
  }

 private:
  const bool exclusive_, reverse_;
};

}  // namespace

void RegisterArgAndScan(KernelRegistry* registry) {
#define MG_ADD(T)                                                                   \
  registry->Add<ArgKernel<T, true>>(                                                \
      {.op = "ArgMax", .types = {{"T", kDTypeOf<T>}}, .host_args = {"dimension"}}); \
  registry->Add<ArgKernel<T, false>>(                                               \
      {.op = "ArgMin", .types = {{"T", kDTypeOf<T>}}, .host_args = {"dimension"}});
  MG_NUMBER_TYPES(MG_ADD)
  MG_ADD(uint8_t)
  MG_ADD(int8_t)
  MG_ADD(int16_t)
  MG_ADD(uint16_t)
  MG_ADD(bool)
#undef MG_ADD
#define MG_ADD(T)                                                              \
  registry->Add<ScanKernel<T, SumStep>>(                                       \
      {.op = "Cumsum", .types = {{"T", kDTypeOf<T>}}, .host_args = {"axis"}}); \
  registry->Add<ScanKernel<T, ProductStep>>(                                   \
      {.op = "Cumprod", .types = {{"T", kDTypeOf<T>}}, .host_args = {"axis"}});
  MG_NUMBER_TYPES(MG_ADD)
#undef MG_ADD
#define MG_ADD(T)                           \
  registry->Add<ScanKernel<T, LogSumStep>>( \
      {.op = "CumulativeLogsumexp", .types = {{"T", kDTypeOf<T>}}, .host_args = {"axis"}});
  MG_FLOAT_TYPES(MG_ADD)
#undef MG_ADD
}

}  // namespace monograph::ops::reduce
