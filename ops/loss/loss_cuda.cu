// Losses. A label outside the classes cannot be refused without waiting for the device: its row's
// loss and gradient are NaN, as TensorFlow's are on GPUs.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "executor/kernel.h"
#include "ops/gpu/launch.h"
#include "ops/loss/check.h"
#include "ops/loss/l2_loss_cuda.h"
#include "ops/softmax/row_softmax.h"

namespace monograph::ops::loss {
namespace {

template <typename T, typename L>
struct SparseRows {
  static constexpr int kThreads = kRowThreads, kPhases = 3;
  using A = Accumulator<T>;
  using Shared = RowShared<A>;
  int64_t classes;
  const T* logits;
  const L* labels;
  T *loss, *backprop;

  MG_HD void operator()(int phase, int64_t row, int thread, Shared& shared) const {
    const T* in = logits + row * classes;
    const auto at = [in](int64_t k) { return Widen(in[k]); };
    if (phase == 0) return RowMaximum<A>(thread, classes, at, shared);
    if (phase == 1) return RowSum<A>(thread, classes, at, shared);
    const A sum = RowTotal(shared), top = shared.top;
    const auto label = static_cast<int64_t>(labels[row]);
    const bool valid = label >= 0 && label < classes;
    const A nan = std::numeric_limits<A>::quiet_NaN();
    for (int64_t k = thread; k < classes; k += kThreads) {
      const A p = std::exp(Widen(in[k]) - top) / sum - (k == label ? A(1) : A(0));
      backprop[row * classes + k] = Narrow<T>(valid ? p : nan);
    }
    if (thread == 0) loss[row] = Narrow<T>(valid ? std::log(sum) - (Widen(in[label]) - top) : nan);
  }
};

template <typename T, typename L>
class SparseKernel : public Kernel {
 public:
  explicit SparseKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor logits = c.input(0), labels = c.input(1);
    const Shape shape = logits.shape();
    MG_RETURN_IF_ERROR(CheckSparse(shape, labels.shape()));
    MG_ASSIGN_OR_RETURN(Tensor * loss, c.AllocateOutput(0, Shape{shape[0]}));
    MG_ASSIGN_OR_RETURN(Tensor * backprop, c.AllocateOutput(1, shape));
    if (shape[1] == 0 && shape[0] > 0) return InvalidArgument("there are no classes");
    return ForBlocks(c, shape[0],
                     SparseRows<T, L>{shape[1], logits.data<T>(), labels.data<L>(), loss->data<T>(),
                                      backprop->data<T>()});
  }
};

// A dimension of size 1 repeats: its stride is 0.
template <typename T>
struct DenseRows {
  static constexpr int kThreads = kRowThreads, kPhases = 4;
  using A = Accumulator<T>;
  using Shared = RowShared<A>;
  int64_t classes;
  const T *logits, *labels;
  int64_t logit_row, logit_class, label_row, label_class;
  T *loss, *backprop;

  MG_HD void operator()(int phase, int64_t row, int thread, Shared& shared) const {
    const T *in = logits + row * logit_row, *target = labels + row * label_row;
    const auto at = [in, step = logit_class](int64_t k) { return Widen(in[k * step]); };
    if (phase == 0) return RowMaximum<A>(thread, classes, at, shared);
    if (phase == 1) return RowSum<A>(thread, classes, at, shared);
    if (phase == 2) {
      const A sum = RowTotal(shared), log_sum = std::log(sum), top = shared.top;
      A total = 0;
      for (int64_t k = thread; k < classes; k += kThreads) {
        const A q = Widen(target[k * label_class]), from = at(k) - top;
        if (q != A(0)) total += q * (log_sum - from);
        backprop[row * classes + k] = Narrow<T>(std::exp(from) / sum - q);
      }
      shared.part[thread] = total;
      return;
    }
    if (thread != 0) return;
    A total = 0;
    for (int i = 0; i < kThreads; ++i) total += shared.part[i];
    loss[row] = Narrow<T>(total);
  }
};

template <typename T>
class DenseKernel : public Kernel {
 public:
  explicit DenseKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor logits = c.input(0), labels = c.input(1);
    const Shape fs = logits.shape(), ls = labels.shape();
    MG_ASSIGN_OR_RETURN(const Shape shape, CheckDense(fs, ls));
    MG_ASSIGN_OR_RETURN(Tensor * loss, c.AllocateOutput(0, Shape{shape[0]}));
    MG_ASSIGN_OR_RETURN(Tensor * backprop, c.AllocateOutput(1, shape));
    if (shape[1] == 0) return DeviceZero(c, loss->raw(), loss->bytes());
    return ForBlocks(c, shape[0],
                     DenseRows<T>{shape[1], logits.data<T>(), labels.data<T>(), RowStride(fs, 0),
                                  RowStride(fs, 1), RowStride(ls, 0), RowStride(ls, 1),
                                  loss->data<T>(), backprop->data<T>()});
  }
};

template <typename L>
struct TopRows {
  int64_t classes;
  const float* predictions;
  const L *targets, *k;
  bool* out;

  MG_HD void operator()(int64_t i) const {
    const float* row = predictions + i * classes;
    const auto target = static_cast<int64_t>(targets[i]);
    bool in_top = target >= 0 && target < classes && Finite(row[target]);
    int64_t higher = 0;
    for (int64_t j = 0; in_top && j < classes; ++j) {
      if (!Finite(row[j])) in_top = false;
      if (row[j] > row[target]) ++higher;
    }
    out[i] = in_top && higher < static_cast<int64_t>(*k);
  }
  MG_HD static bool Finite(float x) { return x - x == 0.f; }
};

template <typename L>
class InTopKKernel : public Kernel {
 public:
  explicit InTopKKernel(const KernelConstruction&) {}

  Status Compute(KernelContext& c) override {
    const Tensor predictions = c.input(0), targets = c.input(1);
    MG_RETURN_IF_ERROR(CheckInTopK(predictions.shape(), targets.shape()));
    const int64_t rows = predictions.shape()[0];
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(0, Shape{rows}));
    return ForEach(c, rows,
                   TopRows<L>{predictions.shape()[1], predictions.data<float>(), targets.data<L>(),
                              c.input(2).data<L>(), out->data<bool>()});
  }
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                                                     \
  registry->Add<SparseKernel<T, int32_t>>({.op = "SparseSoftmaxCrossEntropyWithLogits",            \
                                           .device = kGpu,                                         \
                                           .types = {{"T", kDTypeOf<T>}, {"Tlabels", DT_INT32}}}); \
  registry->Add<SparseKernel<T, int64_t>>({.op = "SparseSoftmaxCrossEntropyWithLogits",            \
                                           .device = kGpu,                                         \
                                           .types = {{"T", kDTypeOf<T>}, {"Tlabels", DT_INT64}}}); \
  registry->Add<DenseKernel<T>>(                                                                   \
      {.op = "SoftmaxCrossEntropyWithLogits", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
  RegisterL2LossCuda(registry);
  registry->Add<InTopKKernel<int32_t>>(
      {.op = "InTopKV2", .device = kGpu, .types = {{"T", DT_INT32}}});
  registry->Add<InTopKKernel<int64_t>>(
      {.op = "InTopKV2", .device = kGpu, .types = {{"T", DT_INT64}}});
}

}  // namespace monograph::ops::loss
