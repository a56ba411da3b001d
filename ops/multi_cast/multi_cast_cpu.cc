#include "ops/cpu/kernel_util.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/multi_cast/casts.h"

namespace monograph::ops::multi_cast {
namespace {

void Convert(const float* from, float* to, int64_t n) { std::copy_n(from, n, to); }
void Convert(const float* from, half* to, int64_t n) { FromFloats(from, to, n); }
void Convert(const float* from, bfloat16* to, int64_t n) { FromFloats(from, to, n); }

class MultiCastKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelConstruction& k) {
    auto kernel = std::make_unique<MultiCastKernel>();
    MG_ASSIGN_OR_RETURN(kernel->casts_, Casts::Of(k));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status Compute(KernelContext& c) override {
    for (int i = 0; i < c.num_inputs(); ++i) {
      const DType type = casts_.types[static_cast<size_t>(i)];
      MG_RETURN_IF_ERROR(type == DT_FLOAT  ? One<float>(c, i)
                         : type == DT_HALF ? One<half>(c, i)
                                           : One<bfloat16>(c, i));
    }
    return Status();
  }

 private:
  template <typename To>
  Status One(KernelContext& c, int i) const {
    const Tensor in = c.input(i);
    const Shape& shape = in.shape();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i, casts_.OutputShape(i, shape)));
    Tensor memory;  // of `from`, where it is no input
    const float* from = in.data<float>();
    if (casts_.moves(i, shape) && in.elements() > 0) {
      MG_ASSIGN_OR_RETURN(Tensor moved, c.AllocateTemp(DT_FLOAT, out->shape()));
      const int64_t columns = shape[shape.rank() - 1], rows = in.elements() / columns;
      StridedSpace space;
      space.Add(columns, 1, rows);
      space.Add(rows, columns, 1);
      StridedCopy(c, sizeof(float), from, moved.raw(), space);
      from = moved.data<float>();
      memory = std::move(moved);
    }
    To* const to = out->data<To>();
    InPieces(c, in.elements(),
             [=](int64_t begin, int64_t end) { Convert(from + begin, to + begin, end - begin); });
    return Status();
  }

  Casts casts_;
};

}  // namespace

void RegisterCpu(KernelRegistry* registry) { registry->Add<MultiCastKernel>({.op = "_MultiCast"}); }

}  // namespace monograph::ops::multi_cast
