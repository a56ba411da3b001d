// Softmax and LogSoftmax: a block of threads for each row. cuDNN stands beside them
// (ops/gpu/cudnn_layer.h).
#include "executor/kernel.h"
#include "ops/gpu/cudnn_layer.h"
#include "ops/gpu/launch.h"
#include "ops/softmax/row_softmax.h"

namespace monograph::ops::softmax {
namespace {

template <typename T, bool kLog>
struct Rows {
  static constexpr int kThreads = kRowThreads, kPhases = 3;
  using A = Accumulator<T>;
  using Shared = RowShared<A>;
  int64_t classes;
  const T* x;
  T* y;

  MG_HD void operator()(int phase, int64_t row, int thread, Shared& shared) const {
    const T* in = x + row * classes;
    const auto at = [in](int64_t k) { return Widen(in[k]); };
    if (phase == 0) return RowMaximum<A>(thread, classes, at, shared);
    if (phase == 1) return RowSum<A>(thread, classes, at, shared);
    const A sum = RowTotal(shared), top = shared.top;
    const A shift = kLog ? std::log(sum) : A(0);
    for (int64_t k = thread; k < classes; k += kThreads) {
      const A from = Widen(in[k]) - top;
      y[row * classes + k] = Narrow<T>(kLog ? from - shift : std::exp(from) / sum);
    }
  }
};

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
    LayerCall call{.layer = kLog ? Layer::kLogSoftmax : Layer::kSoftmax,
                   .dtype = kDTypeOf<T>,
                   .nchw = true,
                   .image = {rows, classes, 1, 1}};
    call.in[0] = x;
    MG_ASSIGN_OR_RETURN(Tensor * out, CudnnLayer::Considered(c, call)
                                          ? c.AllocateOutput(0, shape)
                                          : c.ForwardOrAllocate(0, 0, shape));
    T* y = out->data<T>();
    call.out[0] = y;
    return layer_.Run(c, call, [&] { return ForBlocks(c, rows, Rows<T, kLog>{classes, x, y}); });
  }

 private:
  CudnnLayer layer_;
};

}  // namespace

void RegisterCuda(KernelRegistry* registry) {
#define ADD(T)                                                           \
  registry->Add<SoftmaxKernel<T, false>>(                                \
      {.op = "Softmax", .device = kGpu, .types = {{"T", kDTypeOf<T>}}}); \
  registry->Add<SoftmaxKernel<T, true>>(                                 \
      {.op = "LogSoftmax", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(ADD)
#undef ADD
}

}  // namespace monograph::ops::softmax
