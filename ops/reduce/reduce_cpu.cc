// CPU kernels of reductions. A plan (reduce/plan.h) merges the axes into alternating kept and
// reduced dimensions, of which few patterns matter: all, the last, the middle. Any other is copied
// so that the reduced dimensions come last. Work is cut into blocks whose sizes follow from the
// shape alone, and partial results are combined in order, so that the bits do not depend on
// threads.
#include "ops/reduce/reduce_cpu.h"

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "executor/kernel.h"
#include "ops/cpu/kernel_util.h"
#include "ops/reduce/plan.h"
#include "ops/reduce/register.h"

namespace monograph::ops::reduce {
namespace {

// What is compiled for each operation and type of element; the rest moves bytes of `size` each.
struct Loops {
  size_t size;
  // *out = the run x[0, n); the same for one block of it.
  void (*run)(const KernelContext& c, const void* x, int64_t n, void* out);
  void (*block)(const void* x, int64_t n, void* out);
  // *out = x[0, n) one after the other.
  void (*fold)(const void* x, int64_t n, void* out);
  // As ReduceRows.
  void (*rows)(const KernelContext& c, const void* x, int64_t rows, int64_t columns, int64_t pitch,
               void* out);
};

template <typename T, typename Op>
struct LoopsFor {
  static void Run(const KernelContext& c, const void* x, int64_t n, void* out) {
    *static_cast<T*>(out) =
        ReduceRun<T, Op>(static_cast<const T*>(x), n, [&c] { return c.cancelled(); });
  }
  static void Block(const void* x, int64_t n, void* out) {
    *static_cast<T*>(out) = ReduceBlock<T, Op>(static_cast<const T*>(x), n);
  }
  static void Fold(const void* x, int64_t n, void* out) {
    T result = Op::Zero();
    for (int64_t i = 0; i < n; ++i) result = Op::Combine(result, static_cast<const T*>(x)[i]);
    *static_cast<T*>(out) = result;
  }
  static void Rows(const KernelContext& c, const void* x, int64_t rows, int64_t columns,
                   int64_t pitch, void* out) {
    ReduceRows<T, Op>(static_cast<const T*>(x), rows, columns, pitch, static_cast<T*>(out),
                      [&c] { return c.cancelled(); });
  }
  static constexpr Loops kLoops = {sizeof(T), &Run, &Block, &Fold, &Rows};
};

// Element `i` of elements of `size` bytes.
const char* At(const void* x, int64_t i, size_t size) {
  return static_cast<const char*>(x) + static_cast<size_t>(i) * size;
}
char* At(void* x, int64_t i, size_t size) {
  return static_cast<char*>(x) + static_cast<size_t>(i) * size;
}

// Memory for n elements.
Result<Tensor> AllocatePartial(KernelContext& c, int64_t n, size_t size) {
  return c.AllocateTemp(DT_UINT8, Shape{n * static_cast<int64_t>(size)});
}

Status ReduceAll(KernelContext& c, const Loops& loops, const void* x, int64_t n, void* out) {
  if (n <= 8 * kBlock || c.intra_op_threads() == 1) {
    loops.run(c, x, n, out);
    return Status();
  }
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  MG_ASSIGN_OR_RETURN(Tensor partial, AllocatePartial(c, blocks, loops.size));
  void* const parts = partial.raw();
  c.ParallelFor(blocks, kBlock / 4, [=, &loops](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      loops.block(At(x, b * kBlock, loops.size), std::min(kBlock, n - b * kBlock),
                  At(parts, b, loops.size));
    }
  });
  loops.fold(parts, blocks, out);
  return Status();
}

// [groups, rows, columns] -> [groups, columns]
Status ReduceMiddle(KernelContext& c, const Loops& loops, const void* x, int64_t groups,
                    int64_t rows, int64_t columns, void* out) {
  const size_t size = loops.size;
  const int64_t blocks = (rows + kRowBlock - 1) / kRowBlock;
  if (blocks <= 1) {
    if (groups > 1) {
      c.ParallelFor(groups, 1 + rows * columns / 4, [=, &c, &loops](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          loops.rows(c, At(x, g * rows * columns, size), rows, columns, columns,
                     At(out, g * columns, size));
        }
      });
    } else {
      c.ParallelFor((columns + 63) / 64, 1 + rows * 16,
                    [=, &c, &loops](int64_t begin, int64_t end) {
                      const int64_t first = begin * 64, count = std::min(columns, end * 64) - first;
                      loops.rows(c, At(x, first, size), rows, count, columns, At(out, first, size));
                    });
    }
    return Status();
  }
  MG_ASSIGN_OR_RETURN(Tensor partial, AllocatePartial(c, groups * blocks * columns, size));
  void* const parts = partial.raw();
  c.ParallelFor(groups * blocks, 1 + kRowBlock * columns / 4,
                [=, &c, &loops](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t g = i / blocks, first = i % blocks * kRowBlock;
                    loops.rows(c, At(x, (g * rows + first) * columns, size),
                               std::min(kRowBlock, rows - first), columns, columns,
                               At(parts, i * columns, size));
                  }
                });
  for (int64_t g = 0; g < groups; ++g) {
    loops.rows(c, At(parts, g * blocks * columns, size), blocks, columns, columns,
               At(out, g * columns, size));
  }
  return Status();
}

Status ReduceLast(KernelContext& c, const Loops& loops, const void* x, int64_t rows, int64_t n,
                  void* out) {
  c.ParallelFor(rows, 5 + n / 4, [=, &c, &loops](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      loops.run(c, At(x, r * n, loops.size), n, At(out, r, loops.size));
  });
  return Status();
}

Status ReduceAny(KernelContext& c, const Loops& loops, const ReducePlan& plan, const void* x,
                 void* out) {
  if (plan.kept_elements == 0) return Status();
  if (plan.reduced_elements == 0) {
    for (int64_t i = 0; i < plan.kept_elements; ++i) loops.fold(x, 0, At(out, i, loops.size));
    return Status();
  }
  const auto& size = plan.size;
  if (plan.rank == 0 || plan.Is({false})) {
    std::memcpy(out, x, static_cast<size_t>(plan.kept_elements) * loops.size);
    return Status();
  }
  if (plan.Is({true})) return ReduceAll(c, loops, x, size[0], out);
  if (plan.Is({false, true})) return ReduceLast(c, loops, x, size[0], size[1], out);
  if (plan.Is({true, false})) return ReduceMiddle(c, loops, x, 1, size[0], size[1], out);
  if (plan.Is({false, true, false}))
    return ReduceMiddle(c, loops, x, size[0], size[1], size[2], out);
  // More alternations: bring the reduced dimensions to the end.
  MG_ASSIGN_OR_RETURN(Tensor moved,
                      AllocatePartial(c, plan.kept_elements * plan.reduced_elements, loops.size));
  StridedCopy(c, loops.size, x, moved.raw(), plan.ReducedLast());
  return ReduceLast(c, loops, moved.raw(), plan.kept_elements, plan.reduced_elements, out);
}

// Divides sums by the number of elements of each.
template <typename T>
void Divide(KernelContext& c, void* sums, const ReducePlan& plan) {
  if constexpr (std::is_integral_v<T>) {
    if (plan.reduced_elements == 0) return;  // 0 by 0 elements: stays 0
  }
  using N = std::conditional_t<std::is_integral_v<T>, int64_t, T>;  // more than int32 may hold
  const N n = static_cast<N>(plan.reduced_elements);
  T* const values = static_cast<T*>(sums);
  c.ParallelFor(plan.kept_elements, 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = T(values[i] / n);
  });
}

template <template <typename> typename Op>
const Loops* LoopsOf(DType dtype) {
  switch (dtype) {
    case DT_DOUBLE:
      return &LoopsFor<double, Op<double>>::kLoops;
    case DT_INT32:
      return &LoopsFor<int32_t, Op<int32_t>>::kLoops;
    case DT_INT64:
      return &LoopsFor<int64_t, Op<int64_t>>::kLoops;
    default:  // 16-bit floats are reduced as floats
      return &LoopsFor<float, Op<float>>::kLoops;
  }
}
template <template <typename> typename Op>
const Loops* LoopsOfBool(DType) {
  return &LoopsFor<bool, Op<bool>>::kLoops;
}

struct Reduction {
  std::string_view op;
  const Loops* (*loops)(DType dtype);
};
constexpr Reduction kReductions[] = {
    {"Sum", &LoopsOf<SumOp>},     {"Mean", &LoopsOf<SumOp>},    {"EuclideanNorm", &LoopsOf<SumOp>},
    {"Max", &LoopsOf<MaxOp>},     {"Min", &LoopsOf<MinOp>},     {"Prod", &LoopsOf<ProdOp>},
    {"All", &LoopsOfBool<AllOp>}, {"Any", &LoopsOfBool<AnyOp>},
};

// Calls fn with a value of the type in which `dtype`, a type of numbers, is reduced.
template <typename Fn>
auto WithReduced(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DT_DOUBLE:
      return fn(double{});
    case DT_INT32:
      return fn(int32_t{});
    case DT_INT64:
      return fn(int64_t{});
    default:
      return fn(float{});
  }
}

// Squares of n elements; `out` may be `x`.
void SquareAll(KernelContext& c, DType dtype, const void* x, int64_t n, void* out) {
  WithReduced(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    c.ParallelFor(n, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = T(from[i] * from[i]);
    });
  });
}

void RootAll(KernelContext& c, DType dtype, void* x, int64_t n) {
  WithReduced(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const values = static_cast<T*>(x);
    c.ParallelFor(n, 2, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = static_cast<T>(std::sqrt(values[i]));
    });
  });
}

class ReduceKernel : public Kernel {
 public:
  explicit ReduceKernel(const KernelConstruction& k)
      : keep_dims_(k.attr<bool>("keep_dims")),
        mean_(k.op() == "Mean"),
        norm_(k.op() == "EuclideanNorm"),
        dtype_(k.input_dtype(0)) {
    for (const Reduction& reduction : kReductions) {
      if (reduction.op == k.op()) loops_ = reduction.loops(dtype_);
    }
  }
  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(const ReducePlan plan,
                        MakePlan(c.input(0).shape(), c.input(1), keep_dims_));
    if (dtype_ == DT_HALF) return ReduceAsFloats<half>(c, plan);
    if (dtype_ == DT_BFLOAT16) return ReduceAsFloats<bfloat16>(c, plan);
    if (plan.reduced_elements == 1 && !norm_) {
      c.set_output(0, c.TakeInput(0).Reshaped(plan.output));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const void* from = c.input(0).raw();
    Tensor squares;
    if (norm_) {
      MG_ASSIGN_OR_RETURN(squares, c.AllocateTemp(dtype_, c.input(0).shape()));
      SquareAll(c, dtype_, from, squares.elements(), squares.raw());
      from = squares.raw();
    }
    MG_RETURN_IF_ERROR(ReduceAny(c, *loops_, plan, from, out->raw()));
    if (norm_) RootAll(c, dtype_, out->raw(), plan.kept_elements);
    if (mean_) {
      WithReduced(dtype_, [&](auto zero) { Divide<decltype(zero)>(c, out->raw(), plan); });
    }
    return Status();
  }

 private:
  // 16-bit floats are widened, reduced as floats, and rounded once.
  template <typename T16>
  Status ReduceAsFloats(KernelContext& c, const ReducePlan& plan) const {
    MG_ASSIGN_OR_RETURN(Tensor wide, c.AllocateTemp(DT_FLOAT, c.input(0).shape()));
    MG_ASSIGN_OR_RETURN(Tensor result, c.AllocateTemp(DT_FLOAT, plan.output));
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, plan.output));
    const T16* narrow = c.input(0).data<T16>();
    c.ParallelFor(wide.elements(), 1,
                  [narrow, to = wide.data<float>()](int64_t begin, int64_t end) {
                    ToFloats(narrow + begin, to + begin, end - begin);
                  });
    if (norm_) SquareAll(c, DT_FLOAT, wide.raw(), wide.elements(), wide.raw());
    float* const from = result.data<float>();
    MG_RETURN_IF_ERROR(ReduceAny(c, *loops_, plan, wide.raw(), from));
    if (mean_) Divide<float>(c, from, plan);
    if (norm_) RootAll(c, DT_FLOAT, from, plan.kept_elements);
    c.ParallelFor(plan.kept_elements, 1, [from, to = out->data<T16>()](int64_t begin, int64_t end) {
      FromFloats(from + begin, to + begin, end - begin);
    });
    return Status();
  }

  const bool keep_dims_, mean_, norm_;
  const DType dtype_;
  const Loops* loops_ = nullptr;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
  constexpr DType kNumbers[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16, DT_INT32, DT_INT64};
  for (const Reduction& reduction : kReductions) {
    const KernelDef def{.op = std::string(reduction.op), .host_args = {"reduction_indices"}};
    if (reduction.op == "All" || reduction.op == "Any") {
      registry->Add<ReduceKernel>(def);
    } else {
      AddForTypes<ReduceKernel>(registry, def, "T", kNumbers);
    }
  }
  RegisterArgAndScan(registry);
}

}  // namespace monograph::ops::reduce
