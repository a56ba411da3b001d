#include "ops/elementwise/functors.h"
#include "ops/elementwise/loops_cuda.h"

namespace monograph::ops::elementwise {
namespace {

// sum = ((input0 + input1) + input2) + ..., rounded to T each time, as on a CPU. A launch adds up
// to kMost inputs to what there is.
template <typename T>
struct AddNBody {
  static constexpr int kMost = 16, kPack = kPackOf<T, T>;
  const T* inputs[kMost];
  int count;
  T* sum;
  int64_t n;
  bool packs;

  MG_HD static T Add(T x, T y) {
    return Narrow<T>(static_cast<Accumulator<T>>(Widen(x) + Widen(y)));
  }
  MG_HD void operator()(int64_t group) const {
    const int64_t first = group * kPack;
    if (packs && first + kPack <= n) {
      auto total = LoadPack<T, kPack>(inputs[0] + first);
      for (int i = 1; i < count; ++i) {
        const auto next = LoadPack<T, kPack>(inputs[i] + first);
        MG_UNROLL
        for (int k = 0; k < kPack; ++k) total.values[k] = Add(total.values[k], next.values[k]);
      }
      StorePack<T, kPack>(sum + first, total);
      return;
    }
    for (int64_t k = first; k < first + kPack && k < n; ++k) {
      T total = inputs[0][k];
      for (int i = 1; i < count; ++i) total = Add(total, inputs[i][k]);
      sum[k] = total;
    }
  }
};

template <typename T>
class DeviceAddNKernel : public Kernel {
 public:
  explicit DeviceAddNKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    const int count = c.num_inputs();
    const Shape shape = c.input(0).shape();
    for (int i = 1; i < count; ++i) {
      if (!(c.input(i).shape() == shape)) {
        return InvalidArgument("input " + std::to_string(i) + " has shape " +
                               c.input(i).shape().ToString() + ", input 0 " + shape.ToString());
      }
    }
    if (count == 1) {
      c.set_output(0, c.TakeInput(0));
      return Status();
    }
    MG_ASSIGN_OR_RETURN(Tensor * out, c.ForwardOrAllocate(0, 0, shape));
    using Body = AddNBody<T>;
    Body body{};
    body.sum = out->data<T>();
    body.n = shape.elements();
    body.inputs[0] = c.input(0).template data<T>();
    for (int next = 1; next < count;) {
      body.count = 1;
      while (body.count < Body::kMost && next < count)
        body.inputs[body.count++] = c.input(next++).template data<T>();
      body.packs = reinterpret_cast<uintptr_t>(body.sum) % 16 == 0;
      for (int i = 0; i < body.count; ++i)
        body.packs = body.packs && reinterpret_cast<uintptr_t>(body.inputs[i]) % 16 == 0;
      MG_RETURN_IF_ERROR(ForEach(c, (body.n + Body::kPack - 1) / Body::kPack, body));
      body.inputs[0] = body.sum;
    }
    return Status();
  }
};

}  // namespace

void RegisterArithmeticCuda(KernelRegistry* r) {
#define MG_DEVICE float, double, half, bfloat16, int64_t
#define MG_FLOATS float, double, half, bfloat16
  AddDeviceBinary<AddFn, MG_DEVICE>(r, "AddV2");
  AddDeviceBinary<AddFn, MG_DEVICE>(r, "Add");
  AddDeviceBinary<SubFn, MG_DEVICE>(r, "Sub");
  AddDeviceBinary<MulFn, MG_DEVICE>(r, "Mul");
  AddDeviceBinary<MaximumFn, MG_DEVICE>(r, "Maximum");
  AddDeviceBinary<MinimumFn, MG_DEVICE>(r, "Minimum");
  AddDeviceBinary<SquaredDifferenceFn, MG_DEVICE>(r, "SquaredDifference");
  AddDeviceBinary<SigmoidGradFn, MG_FLOATS>(r, "SigmoidGrad");
  AddDeviceBinary<TanhGradFn, MG_FLOATS>(r, "TanhGrad");
  AddDeviceBinary<SqrtGradFn, MG_FLOATS>(r, "SqrtGrad");
  AddDeviceBinary<RsqrtGradFn, MG_FLOATS>(r, "RsqrtGrad");
  AddDeviceBinary<ReciprocalGradFn, MG_FLOATS>(r, "ReciprocalGrad");
  AddDeviceBinary<ReciprocalGradFn, MG_FLOATS>(r, "InvGrad");
  AddDeviceBinary<DivFn, MG_FLOATS>(r, "Div");
  AddDeviceBinary<DivFn, MG_FLOATS>(r, "RealDiv");
  AddDeviceBinary<FloorDivFn, MG_FLOATS>(r, "FloorDiv");
  AddDeviceBinary<FloorModFn, MG_FLOATS>(r, "FloorMod");
  AddDeviceBinary<DivNoNanFn, MG_FLOATS>(r, "DivNoNan");
  AddDeviceBinary<PowFn, MG_FLOATS>(r, "Pow");
  AddDeviceBinary<MulNoNanFn, MG_FLOATS>(r, "MulNoNan");
  AddDeviceBinary<XlogyFn, MG_FLOATS>(r, "Xlogy");
  AddDeviceBinary<Xlog1pyFn, MG_FLOATS>(r, "Xlog1py");
  AddDeviceBinary<XdivyFn, MG_FLOATS>(r, "Xdivy");
  AddDeviceBinary<Atan2Fn, MG_FLOATS>(r, "Atan2");
  AddDeviceBinary<NextAfterFn, float, double>(r, "NextAfter");
#define MG_ADD(T) \
  r->Add<DeviceAddNKernel<T>>({.op = "AddN", .device = kGpu, .types = {{"T", kDTypeOf<T>}}});
  MG_FLOAT_TYPES(MG_ADD)
  MG_ADD(int64_t)
  MG_ADD(uint8_t)
#undef MG_ADD
}

}  // namespace monograph::ops::elementwise
