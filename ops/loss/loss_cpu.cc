// CPU kernels of losses. For the cross entropies, Exponentials stores exp(x - max) of a row in the
// row's backprop and returns the sum; a second loop turns these into the loss and the gradient,
// without memory of its own. L2Loss adds up in double, in blocks whose size does not depend on the
// number of threads.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "executor/kernel.h"
#include "ops/cpu/float_view_cpu.h"
#include "ops/cpu/pieces_cpu.h"
#include "ops/loss/check.h"

namespace monograph::ops::loss {
namespace {

// exp(x - max x) of one row into `e`; returns its sum, and the maximum in `top`.
template <typename T, typename A>
A Exponentials(const KernelContext& c, const T* x, int64_t step, int64_t classes, T* e, A* top) {
  A largest = static_cast<A>(x[0]), sum = 0;
  InPieces(c, classes, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) largest = std::max(largest, static_cast<A>(x[k * step]));
  });
  InPieces(c, classes, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const A value = std::exp(static_cast<A>(x[k * step]) - largest);
      e[k] = T(value);
      sum += value;
    }
  });
  *top = largest;
  return sum;
}

template <typename T, typename L>
class SparseKernel : public Kernel {
 public:
  explicit SparseKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor &logits = c.input(0), &labels = c.input(1);
    const Shape shape = logits.shape();
    MG_RETURN_IF_ERROR(CheckSparse(shape, labels.shape()));
    const int64_t rows = shape[0], classes = shape[1];
    const L* label = labels.data<L>();
    int64_t wrong = rows;
    InPieces(c, rows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && wrong == rows; ++i) {
        if (label[i] < 0 || label[i] >= classes) wrong = i;
      }
    });
    if (wrong < rows) {
      return InvalidArgument("Received a label value of " + std::to_string(label[wrong]) +
                             " at index " + std::to_string(wrong) +
                             " which is outside the valid range of [0, " + std::to_string(classes) +
                             ")");
    }
    if (c.cancelled()) return Status();
    MG_ASSIGN_OR_RETURN(Tensor * loss, c.AllocateOutput(0, Shape{rows}));
    MG_ASSIGN_OR_RETURN(Tensor * backprop, c.AllocateOutput(1, shape));
    const T* x = logits.data<T>();
    T *l = loss->data<T>(), *b = backprop->data<T>();
    using A = Accumulator<T>;
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* row = b + i * classes;
        A top;
        const A sum = Exponentials<T, A>(c, x + i * classes, 1, classes, row, &top);
        const auto target = static_cast<int64_t>(label[i]);
        l[i] = T(std::log(sum) - (static_cast<A>(x[i * classes + target]) - top));
        InPieces(c, classes, [&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k)
            row[k] = T(static_cast<A>(row[k]) / sum - (k == target ? A(1) : A(0)));
        });
      }
    };
    c.ParallelFor(rows, 10 * classes, std::ref(body));
    return Status();
  }
};

template <typename T>
class DenseKernel : public Kernel {
 public:
  explicit DenseKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Shape fs = c.input(0).shape(), ls = c.input(1).shape();
    MG_ASSIGN_OR_RETURN(const Shape shape, CheckDense(fs, ls));
    const int64_t rows = shape[0], classes = shape[1];
    MG_ASSIGN_OR_RETURN(Tensor * loss, c.AllocateOutput(0, Shape{rows}));
    MG_ASSIGN_OR_RETURN(Tensor * backprop, c.AllocateOutput(1, shape));
    const T *x = c.input(0).data<T>(), *p = c.input(1).data<T>();
    T *l = loss->data<T>(), *b = backprop->data<T>();
    const int64_t xr = RowStride(fs, 0), xc = RowStride(fs, 1), pr = RowStride(ls, 0),
                  pc = RowStride(ls, 1);
    using A = Accumulator<T>;
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && classes > 0; ++i) {
        T* row = b + i * classes;
        const T *in = x + i * xr, *target = p + i * pr;
        A top;
        const A sum = Exponentials<T, A>(c, in, xc, classes, row, &top), log_sum = std::log(sum);
        A total = 0;
        InPieces(c, classes, [&](int64_t first, int64_t last) {
          for (int64_t k = first; k < last; ++k) {
            const A q = static_cast<A>(target[k * pc]);
            if (q != A(0)) total += q * (log_sum - (static_cast<A>(in[k * xc]) - top));
            row[k] = T(static_cast<A>(row[k]) / sum - q);
          }
        });
        l[i] = T(total);
      }
      if (classes == 0) std::fill(l + begin, l + end, T(0));
    };
    c.ParallelFor(rows, 12 * classes + 1, std::ref(body));
    return Status();
  }
};

// Blocks of fixed size, then their sums in order: the same bits on any number of threads.
template <typename T>
class L2Kernel : public Kernel {
 public:
  explicit L2Kernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape()));
    const int64_t n = c.input(0).elements(), blocks = (n + kBlock - 1) / kBlock;
    MG_ASSIGN_OR_RETURN(Tensor partial, c.AllocateTemp(DT_DOUBLE, Shape{blocks}));
    const T* x = c.input(0).data<T>();
    double* sums = partial.data<double>();
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock, last = std::min(n, first + kBlock);
        double lanes[8] = {};
        int64_t i = first;
        for (; i + 8 <= last; i += 8) {
          for (int k = 0; k < 8; ++k)
            lanes[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
        }
        for (; i < last; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        sums[block] = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                      ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
      }
    };
    c.ParallelFor(blocks, 2000, std::ref(body));
    double total = 0;
    for (int64_t i = 0; i < blocks; ++i) total += sums[i];
    if constexpr (kIs16Bit<T>) {
      *out->data<T>() = T(static_cast<float>(total / 2));
    } else {
      *out->data<T>() = static_cast<T>(total / 2);
    }
    return Status();
  }

 private:
  static constexpr int64_t kBlock = 4096;
};

template <typename L>
class InTopKKernel : public Kernel {  // InTopKV2, and InTopK, which has k as an attribute
 public:
  explicit InTopKKernel(const KernelConstruction& k) : k_(k.attrs().GetOr<int64_t>("k", 0)) {}

  Status Compute(KernelContext& c) override {
    const Tensor &predictions = c.input(0), &targets = c.input(1);
    MG_RETURN_IF_ERROR(CheckInTopK(predictions.shape(), targets.shape()));
    if (c.num_inputs() > 2 && c.input(2).shape().rank() != 0) {
      return InvalidArgument("k must be a scalar, got shape " + c.input(2).shape().ToString());
    }
    const int64_t rows = predictions.shape()[0], classes = predictions.shape()[1];
    const int64_t k = c.num_inputs() > 2 ? static_cast<int64_t>(c.input(2).scalar<L>()) : k_;
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{rows}));
    bool* const in_top_k = out->data<bool>();
    c.ParallelFor(rows, 1 + classes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* row = predictions.data<float>() + i * classes;
        const auto target = static_cast<int64_t>(targets.data<L>()[i]);
        bool in_top = target >= 0 && target < classes && std::isfinite(row[target]);
        int64_t higher = 0;
        InPieces(c, in_top ? classes : 0, [&](int64_t first, int64_t last) {
          for (int64_t j = first; in_top && j < last; ++j) {
            if (!std::isfinite(row[j])) in_top = false;
            if (row[j] > row[target]) ++higher;
          }
        });
        in_top_k[i] = in_top && higher < k;
      }
    });
    return Status();
  }

 private:
  const int64_t k_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) {
#define ADD(T)                                                                                     \
  registry->Add<SparseKernel<T, int32_t>>({.op = "SparseSoftmaxCrossEntropyWithLogits",            \
                                           .types = {{"T", kDTypeOf<T>}, {"Tlabels", DT_INT32}}}); \
  registry->Add<SparseKernel<T, int64_t>>({.op = "SparseSoftmaxCrossEntropyWithLogits",            \
                                           .types = {{"T", kDTypeOf<T>}, {"Tlabels", DT_INT64}}}); \
  registry->Add<DenseKernel<T>>(                                                                   \
      {.op = "SoftmaxCrossEntropyWithLogits", .types = {{"T", kDTypeOf<T>}}});                     \
  registry->Add<L2Kernel<T>>({.op = "L2Loss", .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
  for (const char* op : {"InTopK", "InTopKV2"}) {
    registry->Add<InTopKKernel<int32_t>>({.op = op, .types = {{"T", DT_INT32}}});
    registry->Add<InTopKKernel<int64_t>>({.op = op, .types = {{"T", DT_INT64}}});
  }
}

}  // namespace monograph::ops::loss
