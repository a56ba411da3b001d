// CPU kernels of reductions. A plan (reduce/plan.h) merges the axes into alternating kept and
// reduced dimensions, of which few patterns matter: all, the last, the middle. Any other is copied
// so that the reduced dimensions come last. Work is cut into blocks whose sizes follow from the
// shape alone, and partial results are combined in order, so that the bits do not depend on
// threads.
#include "ops/reduce/reduce_cpu.h"

#include <cstring>

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/reduce/plan.h"
#include "ops/reduce/register.h"

namespace monograph::ops::reduce {
namespace {

template <typename T, typename Op>
Status ReduceAll(KernelContext& c, const T* x, int64_t n, T* out) {
  if (n <= 8 * kBlock || c.intra_op_threads() == 1) {
    *out = ReduceRun<T, Op>(x, n, [&c] { return c.cancelled(); });
    return Status();
  }
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(kDTypeOf<T>, Shape{blocks}));
  T* parts = partial.data<T>();
  c.ParallelFor(blocks, kBlock / 4, [=](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      parts[b] = ReduceBlock<T, Op>(x + b * kBlock, std::min(kBlock, n - b * kBlock));
  });
  T result = Op::Zero();
  for (int64_t b = 0; b < blocks; ++b) result = Op::Combine(result, parts[b]);
  *out = result;
  return Status();
}

// [groups, rows, columns] -> [groups, columns]
template <typename T, typename Op>
Status ReduceMiddle(KernelContext& c, const T* x, int64_t groups, int64_t rows, int64_t columns,
                    T* out) {
  const auto stop = [context = &c] { return context->cancelled(); };
  const int64_t blocks = (rows + kRowBlock - 1) / kRowBlock;
  if (blocks <= 1) {
    if (groups > 1) {
      c.ParallelFor(groups, 1 + rows * columns / 4, [=](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          ReduceRows<T, Op>(x + g * rows * columns, rows, columns, columns, out + g * columns,
                            stop);
        }
      });
    } else {
      c.ParallelFor((columns + 63) / 64, 1 + rows * 16, [=](int64_t begin, int64_t end) {
        const int64_t first = begin * 64, count = std::min(columns, end * 64) - first;
        ReduceRows<T, Op>(x + first, rows, count, columns, out + first, stop);
      });
    }
    return Status();
  }
  MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(kDTypeOf<T>, Shape{groups * blocks, columns}));
  T* parts = partial.data<T>();
  c.ParallelFor(groups * blocks, 1 + kRowBlock * columns / 4, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t g = i / blocks, first = i % blocks * kRowBlock;
      ReduceRows<T, Op>(x + (g * rows + first) * columns, std::min(kRowBlock, rows - first),
                        columns, columns, parts + i * columns, stop);
    }
  });
  for (int64_t g = 0; g < groups; ++g) {
    ReduceRows<T, Op>(parts + g * blocks * columns, blocks, columns, columns, out + g * columns,
                      stop);
  }
  return Status();
}

template <typename T, typename Op>
Status ReduceLast(KernelContext& c, const T* x, int64_t rows, int64_t n, T* out) {
  const auto stop = [context = &c] { return context->cancelled(); };
  c.ParallelFor(rows, 5 + n / 4, [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) out[r] = ReduceRun<T, Op>(x + r * n, n, stop);
  });
  return Status();
}

template <typename T, typename Op>
Status ReduceAny(KernelContext& c, const ReducePlan& plan, const T* x, T* out) {
  if (plan.kept_elements == 0) return Status();
  if (plan.reduced_elements == 0) {
    std::fill_n(out, plan.kept_elements, Op::Zero());
    return Status();
  }
  const auto& size = plan.size;
  if (plan.rank == 0 || plan.Is({false})) {
    std::memcpy(out, x, static_cast<size_t>(plan.kept_elements) * sizeof(T));
    return Status();
  }
  if (plan.Is({true})) return ReduceAll<T, Op>(c, x, size[0], out);
  if (plan.Is({false, true})) return ReduceLast<T, Op>(c, x, size[0], size[1], out);
  if (plan.Is({true, false})) return ReduceMiddle<T, Op>(c, x, 1, size[0], size[1], out);
  if (plan.Is({false, true, false}))
    return ReduceMiddle<T, Op>(c, x, size[0], size[1], size[2], out);
  // More alternations: bring the reduced dimensions to the end.
  MG_ASSIGN_OR_RETURN(
      Tensor moved, c.AllocateTemp(kDTypeOf<T>, Shape{plan.kept_elements, plan.reduced_elements}));
  StridedCopy(c, sizeof(T), x, moved.raw(), plan.ReducedLast());
  return ReduceLast<T, Op>(c, moved.data<T>(), plan.kept_elements, plan.reduced_elements, out);
}

// Op over T; kMean divides the result by the number of elements.
template <typename T, typename Op, bool kMean>
class ReduceKernel : public Kernel {
 public:
  explicit ReduceKernel(const KernelConstruction& k) : keep_dims_(k.attr<bool>("keep_dims")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ReducePlan plan,
                        MakePlan(c.input(0).shape(), c.input(1), keep_dims_));
    if (plan.reduced_elements == 1) {
      c.set_output(0, c.TakeInput(0).Reshaped(plan.output));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    MG_RETURN_IF_ERROR((ReduceAny<T, Op>(c, plan, c.input(0).data<T>(), out->data<T>())));
    if constexpr (kMean) Divide(c, out->data<T>(), plan);
    return Status();
  }

 protected:
  static void Divide(KernelContext& c, T* values, const ReducePlan& plan) {
    if constexpr (std::is_integral_v<T>) {
      if (plan.reduced_elements == 0) return;  // 0 by 0 elements: stays 0
    }
    const T n = static_cast<T>(plan.reduced_elements);
    c.ParallelFor(plan.kept_elements, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = T(values[i] / n);
    });
  }
  const bool keep_dims_;
};

// 16-bit floats are widened, reduced as floats, and rounded once.
template <typename T16, typename Op, bool kMean>
class Reduce16Kernel : public Kernel {
 public:
  explicit Reduce16Kernel(const KernelConstruction& k) : keep_dims_(k.attr<bool>("keep_dims")) {}
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ReducePlan plan,
                        MakePlan(c.input(0).shape(), c.input(1), keep_dims_));
    MG_ASSIGN_OR_RETURN(Tensor wide, c.AllocateTemp(DT_FLOAT, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor result, c.AllocateTemp(DT_FLOAT, plan.output));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const T16* narrow = c.input(0).data<T16>();
    c.ParallelFor(wide.elements(), 1,
                  [narrow, to = wide.data<float>()](int64_t begin, int64_t end) {
                    ToFloats(narrow + begin, to + begin, end - begin);
                  });
    MG_RETURN_IF_ERROR((ReduceAny<float, Op>(c, plan, wide.data<float>(), result.data<float>())));
    if constexpr (kMean) {
      const float n = static_cast<float>(plan.reduced_elements);
      float* const sums = result.data<float>();
      c.ParallelFor(plan.kept_elements, 1, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sums[i] /= n;
      });
    }
    const float* const from = result.data<float>();
    c.ParallelFor(plan.kept_elements, 1, [from, to = out->data<T16>()](int64_t begin, int64_t end) {
      FromFloats(from + begin, to + begin, end - begin);
    });
    return Status();
  }

 private:
  const bool keep_dims_;
};

template <template <typename> typename Op, bool kMean>
void AddReduction(KernelRegistry* registry, const char* op) {
#define MG_ADD(T)                               \
  registry->Add<ReduceKernel<T, Op<T>, kMean>>( \
      {.op = op, .types = {{"T", kDTypeOf<T>}}, .host_args = {"reduction_indices"}});
  MG_ADD(float)
  MG_ADD(double)
  MG_ADD(int32_t)
  MG_ADD(int64_t)
#undef MG_ADD
#define MG_ADD(T)                                     \
  registry->Add<Reduce16Kernel<T, Op<float>, kMean>>( \
      {.op = op, .types = {{"T", kDTypeOf<T>}}, .host_args = {"reduction_indices"}});
  MG_ADD(half)
  MG_ADD(bfloat16)
#undef MG_ADD
}

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  AddReduction<SumOp, false>(registry, "Sum");
  AddReduction<SumOp, true>(registry, "Mean");
  AddReduction<MaxOp, false>(registry, "Max");
  AddReduction<MinOp, false>(registry, "Min");
  AddReduction<ProdOp, false>(registry, "Prod");
  registry->Add<ReduceKernel<bool, AllOp<bool>, false>>(
      {.op = "All", .host_args = {"reduction_indices"}});
  registry->Add<ReduceKernel<bool, AnyOp<bool>, false>>(
      {.op = "Any", .host_args = {"reduction_indices"}});
  RegisterArgAndScan(registry);
}

}  // namespace monograph::ops::reduce
