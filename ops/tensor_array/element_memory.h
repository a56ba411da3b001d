// ElementMemory: where the elements of a TensorArray lie, and what is computed of them there. Of
// any number of arrays; thread-safe.
#pragma once

#include <span>

#include "executor/kernel.h"
#include "ops/gpu/moves.h"

namespace monograph::ops::tensor_array {

class ElementMemory {
 public:
  virtual ~ElementMemory() = default;
  virtual Result<Tensor> Allocate(KernelContext& c, DType dtype, const Shape& shape) const = 0;
  // Of plain data.
  virtual Status Zero(KernelContext& c, Tensor* to) const = 0;
  // to = a + b, rounded to the type; `to` may be one of them. REQUIRES: CanAdd, the same type and
  // number of elements.
  virtual Status Add(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to) const = 0;
  // The parts, one behind the other, become `to`.
  virtual Status Join(KernelContext& c, std::span<const RowPart> parts, Tensor* to) const = 0;
};

// That of a GPU's kernels; only its plug-in has it.
const ElementMemory& ElementsOfGpu();
// That of a CPU's kernels; or, for their elements that stay on the host, of a GPU's.
const ElementMemory& CpuElements();
const ElementMemory& HostElementsOfGpu();

}  // namespace monograph::ops::tensor_array
