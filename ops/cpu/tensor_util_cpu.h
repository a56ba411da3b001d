// Sums, zeros and rows of tensors of any type: for kernels that keep tensors (arrays and lists of
// them), and for AddN and ZerosLike of such lists.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "executor/kernel.h"

namespace monograph {
namespace ops {
struct RowPart;  // ops/gpu/moves.h
}

// In a kernel of a GPU (one with a device_stream) plain data but int32 lies in the GPU's memory.
// There these functions go by what its plug-in has given them before any kernel ran.
struct DeviceElements {
  Status (*zero)(KernelContext& c, Tensor* to);
  Status (*add)(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to);
  Status (*join)(KernelContext& c, std::span<const ops::RowPart> parts, Tensor* to);
};
void UseDeviceElements(const DeviceElements& elements);

// Whether there is a sum of two tensors of this type: of numbers.
bool CanAdd(DType dtype);
// to = a + b; `to` may be one of them. REQUIRES: CanAdd, the same type and number of elements, all
// in host memory.
void AddElements(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to);

// The sum of numbers, or of the values of variants. A tensor that is not valid() is zero.
// InvalidArgument if types or shapes differ.
Result<Tensor> AddTensors(KernelContext& c, const Tensor& a, const Tensor& b);
// Zeros, empty strings, or variants without values.
Result<Tensor> ZeroTensor(KernelContext& c, DType dtype, const Shape& shape);
// ZeroTensor, but of variants the zeros of their values. Of a tensor that is not valid(): that.
Result<Tensor> ZerosLikeTensor(KernelContext& c, const Tensor& tensor);

// What counts against the process's limit while a kernel keeps so many tensors; nullptr for a few.
// ResourceExhausted if there is no room.
Result<std::shared_ptr<void>> RoomForTensors(size_t count);

// Rows [begin, end) of `value` as a tensor of that shape: in the same memory if it is plain data.
Result<Tensor> RowsAs(const Tensor& value, int64_t begin, int64_t end, const Shape& shape);
// The values behind each other become the output, of these dimensions. REQUIRES: as many elements.
Status JoinRows(KernelContext& c, int output, std::span<const Tensor> values,
                std::span<const int64_t> dims);

}  // namespace monograph
