// ArgMax and ArgMin, Cumsum and Cumprod on a GPU. A result of ArgMax is found by 1 to 256 threads,
// which first go through the elements and then halve the candidates in phases; ties go to the lower
// index, so the result does not depend on the number of threads. A running sum is made by one
// thread per column, in order: a parallel scan would be faster on long columns, but would not have
// the CPU's bits.
#include "ops/cpu/kernel_util.h"
#include "ops/gpu/launch.h"
#include "ops/reduce/around.h"
#include "ops/reduce/register.h"

namespace monograph::ops::reduce {
namespace {

// The best element so far and its index; of equal ones the first. NaNs are passed over, except one
// at index 0, which nothing beats.
template <typename A, bool kMax>
struct Best {
  A value;
  int64_t index;  // -1: none yet

  MG_HD static Best Of(A value, int64_t index) {
    return value != value && index != 0 ? Best{value, -1} : Best{value, index};
  }
  MG_HD static Best Better(const Best& a, const Best& b) {
    if (b.index < 0) return a;
    if (a.index < 0) return b;
    if (a.value != a.value) return a;
    if (b.value != b.value) return b;
    const bool more = kMax ? b.value > a.value : b.value < a.value;
    return more || (b.value == a.value && b.index < a.index) ? b : a;
  }
};

// [outer, n, inner] -> [outer, inner]. A result belongs to `lanes` threads.
template <typename T, bool kMax>
struct ArgBody {
  using A = Accumulator<T>;
  static constexpr int kThreads = 256, kPhases = 9;
  struct Shared {
    Best<A, kMax> best[kThreads];
  };

  const T* x;
  void* out;
  bool out_int32;
  int64_t results, n;
  Divisor inner;
  int lanes;  // a power of two

  MG_HD void operator()(int phase, int64_t block, int thread, Shared& shared) const {
    const int lane = thread & (lanes - 1);
    const int64_t result = block * (kThreads / lanes) + thread / lanes;
    if (result >= results) return;
    if (phase == 0) {
      const int64_t o = inner.Divide(result), step = inner.divisor();
      const T* from = x + o * n * step + (result - o * step);
      Best<A, kMax> best{A(0), -1};
      for (int64_t i = lane; i < n; i += lanes)
        best = Best<A, kMax>::Better(best, Best<A, kMax>::Of(Widen(from[i * step]), i));
      shared.best[thread] = best;
      return;
    }
    const int width = kThreads >> phase;
    if (width < lanes && lane < width)
      shared.best[thread] = Best<A, kMax>::Better(shared.best[thread], shared.best[thread + width]);
    if (phase < kPhases - 1 || lane != 0) return;
    const int64_t index = shared.best[thread].index;
    if (out_int32) {
      static_cast<int32_t*>(out)[result] = static_cast<int32_t>(index);
    } else {
      static_cast<int64_t*>(out)[result] = index;
    }
  }
};

template <typename T, bool kMax>
class DeviceArgKernel : public Kernel {
 public:
  explicit DeviceArgKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ArgPlan plan, PlanArg(c.input(0).shape(), c.input(1)));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const Around& around = plan.around;
    if (out->elements() == 0) return Status();
    ArgBody<T, kMax> body{c.input(0).template data<T>(),
                          out->raw(),
                          out->dtype() == DT_INT32,
                          out->elements(),
                          around.n,
                          Divisor(around.inner),
                          1};
    // Neighbouring threads read neighbouring elements: of one row, or of neighbouring columns.
    while (around.inner < 32 && body.lanes < ArgBody<T, kMax>::kThreads &&
           body.lanes * 4 <= around.n)
      body.lanes *= 2;
    const int64_t per_block = ArgBody<T, kMax>::kThreads / body.lanes;
    return ForBlocks(c, (body.results + per_block - 1) / per_block, body);
  }
};

// Each column is summed by one thread, in order: the same bits as on a CPU.
template <typename T, bool kProduct>
struct ScanBody {
  const T* x;
  T* y;
  int64_t n;
  Divisor inner;
  bool exclusive, reverse;

  MG_HD void operator()(int64_t column) const {
    using A = Accumulator<T>;
    const int64_t o = inner.Divide(column), step = inner.divisor();
    const int64_t base = o * n * step + (column - o * step);
    A total = kProduct ? A(1) : A(0);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = base + (reverse ? n - 1 - i : i) * step;
      const A value = Widen(x[at]), next = static_cast<A>(kProduct ? total * value : total + value);
      y[at] = Narrow<T>(exclusive ? total : next);
      total = next;
    }
  }
};

template <typename T, bool kProduct>
class DeviceScanKernel : public Kernel {
 public:
  explicit DeviceScanKernel(const KernelConstruction& k)
      : exclusive_(k.attr<bool>("exclusive")), reverse_(k.attr<bool>("reverse")) {}
  Status Compute(KernelContext& c) override {
    const Shape shape = c.input(0).shape();
    MG_ASSIGN_OR_RETURN(const int axis, AxisOf(c.input(1), shape.rank()));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    const Around a(shape, axis);
    if (shape.elements() == 0) return Status();
    return ForEach(c, a.outer * a.inner,
                   ScanBody<T, kProduct>{c.input(0).template data<T>(), out->data<T>(), a.n,
                                         Divisor(a.inner), exclusive_, reverse_});
  }

 private:
  const bool exclusive_, reverse_;
};

}  // namespace

void RegisterArgAndScanCuda(KernelRegistry* registry) {
#define MG_ADD(T)                                                          \
  registry->Add<DeviceArgKernel<T, true>>({.op = "ArgMax",                 \
                                           .device = kGpu,                 \
                                           .types = {{"T", kDTypeOf<T>}},  \
                                           .host_args = {"dimension"}});   \
  registry->Add<DeviceArgKernel<T, false>>({.op = "ArgMin",                \
                                            .device = kGpu,                \
                                            .types = {{"T", kDTypeOf<T>}}, \
                                            .host_args = {"dimension"}});
  MG_FLOAT_TYPES(MG_ADD)
  MG_INDEX_TYPES(MG_ADD)
  MG_ADD(uint8_t)
  MG_ADD(int8_t)
  MG_ADD(int16_t)
  MG_ADD(uint16_t)
  MG_ADD(bool)
#undef MG_ADD
#define MG_ADD(T)                                                                              \
  registry->Add<DeviceScanKernel<T, false>>(                                                   \
      {.op = "Cumsum", .device = kGpu, .types = {{"T", kDTypeOf<T>}}, .host_args = {"axis"}}); \
  registry->Add<DeviceScanKernel<T, true>>(                                                    \
      {.op = "Cumprod", .device = kGpu, .types = {{"T", kDTypeOf<T>}}, .host_args = {"axis"}});
  MG_FLOAT_TYPES(MG_ADD)
  MG_ADD(int64_t)
#undef MG_ADD
}

}  // namespace monograph::ops::reduce
