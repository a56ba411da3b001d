#include "ops/cpu/kernel_util.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/multi_cast/casts.h"

namespace monograph::ops::multi_cast {
namespace {

template <typename T>
void Convert(const T* from, T* to, int64_t n) {
  std::copy_n(from, n, to);
}
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
      const DType to = casts_.types[static_cast<size_t>(i)];
      MG_RETURN_IF_ERROR(to == DT_FLOAT  ? One<float>(c, i)
                         : to == DT_HALF ? Any<half>(c, i)
                                         : Any<bfloat16>(c, i));
    }
    return Status();
  }

 private:
  template <typename To>
  Status Any(KernelContext& c, int i) const {
    return c.input(i).dtype() == DT_FLOAT ? One<To>(c, i) : One<To, To>(c, i);
  }

  template <typename To, typename From = float>
  Status One(KernelContext& c, int i) const {
    const Tensor in = c.input(i);
    const Shape& shape = in.shape();
    MG_ASSIGN_OR_RETURN(Tensor * out, c.AllocateOutput(i, casts_.OutputShape(i, shape)));
    Tensor memory;  // of `from`, where it is no input
    const From* from = in.data<From>();
    if (casts_.moves(i, shape) && in.elements() > 0) {
      MG_ASSIGN_OR_RETURN(Tensor moved, c.AllocateTemp(in.dtype(), out->shape()));
      const int64_t columns = casts_.Columns(shape), rows = in.elements() / columns;
      StridedSpace space;
      space.Add(columns, 1, rows);
      space.Add(rows, columns, 1);
      StridedCopy(c, sizeof(From), from, moved.raw(), space);
      from = moved.data<From>();
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
