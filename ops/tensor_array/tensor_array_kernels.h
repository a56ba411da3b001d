// Kernels of TensorArrays, for CPUs and GPUs: they deal in tensors, and the array knows in which
// memory these lie (ElementMemory).
#pragma once

#include <string>

#include "executor/kernel.h"
#include "ops/tensor_array/element_memory.h"
#include "ops/tensor_array/tensor_array_resource.h"

namespace monograph::ops::tensor_array {

// TensorArrayV3. Of the device it needs to know where flows lie, and where elements.
class ArrayKernel : public Kernel {
 public:
  ArrayKernel(const KernelConstruction& k, const ElementMemory& flows,
              const ElementMemory& elements);
  Status Compute(KernelContext& c) override;

 private:
  const std::string device_;
  const ElementMemory& flows_;
  ArraySpec spec_;
};

// The others, for CPUs.
void RegisterAccess(KernelRegistry* registry);

}  // namespace monograph::ops::tensor_array
