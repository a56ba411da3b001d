#include "ops/cpu/tensor_util_cpu.h"
#include "ops/tensor_array/tensor_array_kernels.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::tensor_array {
namespace {

class HostElements : public ElementMemory {
 public:
  explicit HostElements(bool of_gpu) : of_gpu_(of_gpu) {}

  Result<Tensor> Allocate(KernelContext& c, DType dtype, const Shape& shape) const override {
    return of_gpu_ ? Tensor::Allocate(dtype, shape) : c.AllocateTemp(dtype, shape);
  }
  Status Zero(KernelContext& c, Tensor* to) const override {
    return HostMoves::Zero(c, to->raw(), to->bytes());
  }
  Status Add(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to) const override {
    AddElements(c, a, b, to);
    return Status();
  }
  Status Join(KernelContext& c, std::span<const RowPart> parts, Tensor* to) const override {
    return HostMoves::Join(c, to->dtype(), parts, 1, to->raw());
  }

 private:
  const bool of_gpu_;  // whose context gives the GPU's memory
};

class CpuArrayKernel : public ArrayKernel {
 public:
  explicit CpuArrayKernel(const KernelConstruction& k)
      : ArrayKernel(k, CpuElements(), CpuElements()) {}
};

}  // namespace

const ElementMemory& CpuElements() {
  static const HostElements elements(/*of_gpu=*/false);
  return elements;
}

const ElementMemory& HostElementsOfGpu() {
  static const HostElements elements(/*of_gpu=*/true);
  return elements;
}

void RegisterCpu(KernelRegistry* registry) {
  variable::AddHandleKernel<CpuArrayKernel>(registry, "TensorArrayV3");
  RegisterAccess(registry);
}

}  // namespace monograph::ops::tensor_array
