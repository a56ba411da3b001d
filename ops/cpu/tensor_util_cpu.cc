// Sums, zeros and rows of any tensors. Variants, such as lists, hold tensors of their own, so sums
// and zeros of them go down into what they hold; how much that may be together is counted (Values).
#include "ops/cpu/tensor_util_cpu.h"

#include <algorithm>
#include <string>

#include "base/pool_allocator.h"
#include "ops/cpu/copy_elements_cpu.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/gpu/moves.h"

namespace monograph {
namespace {

constexpr int64_t kAddends = 4096;

template <typename T>
void AddPieces(KernelContext& c, const void* a, const void* b, void* to, int64_t n) {
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  T* const sum = static_cast<T*>(to);
  c.ParallelFor(n / kAddends + 1, 1000, [=](int64_t first, int64_t last) {
    const int64_t end = std::min(n, last * kAddends);
    for (int64_t i = first * kAddends; i < end; ++i) sum[i] = T(x[i] + y[i]);
  });
}

using AddFn = void (*)(KernelContext& c, const void* a, const void* b, void* to, int64_t n);

// nullptr for what is no number.
AddFn AddOf(DType dtype) {
  switch (dtype) {
#define MG_ADD(T)   \
  case kDTypeOf<T>: \
    return AddPieces<T>;
    MG_NUMBER_TYPES(MG_ADD)
    MG_ADD(uint8_t)
    MG_ADD(int8_t)
    MG_ADD(int16_t)
    MG_ADD(uint16_t)
    MG_ADD(uint32_t)
    MG_ADD(uint64_t)
#undef MG_ADD
    default:
      return nullptr;
  }
}

// Counts the values of variants that a sum or zeros are made of. Values may share what they hold,
// so that a few of them hold each other in more ways than anybody can go.
class Values {
 public:
  explicit Values(const KernelContext& c) : c_(c) {}
  Status Next() {
    if (c_.cancelled()) return Cancelled("the step has ended");
    if (++count_ <= kMost) return Status();
    return InvalidArgument("variants hold more than " + std::to_string(kMost) + " values");
  }

 private:
  static constexpr int64_t kMost = 1 << 20;
  const KernelContext& c_;
  int64_t count_ = 0;
};

Result<Tensor> AddTensors(KernelContext& c, const Tensor& a, const Tensor& b, Values* values);
Result<Tensor> ZerosLikeTensor(KernelContext& c, const Tensor& tensor, Values* values);

DeviceElements device_elements;  // a plug-in's copy of this code has its own

// GPUs of tests that are none compute on the host, and give no functions.
bool HasDevice(const KernelContext& c) {
  return c.device_stream() != nullptr && device_elements.zero != nullptr;
}
bool OnDevice(const KernelContext& c, DType dtype) {
  return HasDevice(c) && IsPlainData(dtype) && dtype != DT_INT32;
}
Result<Tensor> AllocateElement(KernelContext& c, DType dtype, const Shape& shape) {
  if (!HasDevice(c)) return c.AllocateTemp(dtype, shape);
  return Tensor::Allocate(dtype, shape, OnDevice(c, dtype) ? c.allocator() : HostAllocator());
}

}  // namespace

void UseDeviceElements(const DeviceElements& elements) { device_elements = elements; }

bool CanAdd(DType dtype) { return AddOf(dtype) != nullptr; }

void AddElements(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to) {
  AddOf(to->dtype())(c, a.raw(), b.raw(), to->raw(), to->elements());
}

Result<Tensor> AddTensors(KernelContext& c, const Tensor& a, const Tensor& b) {
  Values values(c);
  return AddTensors(c, a, b, &values);
}

Result<Tensor> ZerosLikeTensor(KernelContext& c, const Tensor& tensor) {
  Values values(c);
  return ZerosLikeTensor(c, tensor, &values);
}

namespace {

Result<Tensor> AddTensors(KernelContext& c, const Tensor& a, const Tensor& b, Values* values) {
  if (!a.valid()) return b;
  if (!b.valid()) return a;
  const auto differ = [](const char* what, const std::string& one, const std::string& other) {
    return InvalidArgument(std::string("Trying to add two tensors with incompatible element ") +
                           what + ". One is " + one + " and the other is " + other);
  };
  if (a.dtype() != b.dtype())
    return differ("types", std::string(DTypeName(a.dtype())), std::string(DTypeName(b.dtype())));
  if (!(a.shape() == b.shape()))
    return differ("shapes", a.shape().ToString(), b.shape().ToString());
  if (a.dtype() != DT_VARIANT && !CanAdd(a.dtype())) {
    return InvalidArgument("Trying to add unsupported dtype " + std::string(DTypeName(a.dtype())));
  }
  MG_ASSIGN_OR_RETURN(Tensor sum, AllocateElement(c, a.dtype(), a.shape()));
  if (OnDevice(c, a.dtype())) {
    MG_RETURN_IF_ERROR(device_elements.add(c, a, b, &sum));
    return sum;
  }
  if (a.dtype() != DT_VARIANT) {
    AddElements(c, a, b, &sum);
    return sum;
  }
  for (int64_t i = 0; i < a.elements(); ++i) {
    const Variant &x = a.variants()[i], &y = b.variants()[i];
    if (x == nullptr || y == nullptr) {
      sum.variants()[i] = x == nullptr ? y : x;
      continue;
    }
    MG_RETURN_IF_ERROR(values->Next());
    MG_ASSIGN_OR_RETURN(sum.variants()[i], x->Add(*y, [&](const Tensor& one, const Tensor& other) {
      return AddTensors(c, one, other, values);
    }));
  }
  return sum;
}

}  // namespace

Result<Tensor> ZeroTensor(KernelContext& c, DType dtype, const Shape& shape) {
  MG_ASSIGN_OR_RETURN(Tensor zeros, AllocateElement(c, dtype, shape));
  if (!IsPlainData(dtype) || zeros.bytes() == 0) return zeros;
  MG_RETURN_IF_ERROR(OnDevice(c, dtype) ? device_elements.zero(c, &zeros)
                                        : ops::HostMoves::Zero(c, zeros.raw(), zeros.bytes()));
  return zeros;
}

namespace {

Result<Tensor> ZerosLikeTensor(KernelContext& c, const Tensor& tensor, Values* values) {
  if (!tensor.valid()) return tensor;
  MG_ASSIGN_OR_RETURN(Tensor zeros, ZeroTensor(c, tensor.dtype(), tensor.shape()));
  if (tensor.dtype() != DT_VARIANT) return zeros;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const Variant& value = tensor.variants()[i];
    if (value == nullptr) continue;
    MG_RETURN_IF_ERROR(values->Next());
    MG_ASSIGN_OR_RETURN(zeros.variants()[i], value->ZerosLike([&](const Tensor& one) {
      return ZerosLikeTensor(c, one, values);
    }));
  }
  return zeros;
}

}  // namespace

Result<std::shared_ptr<void>> RoomForTensors(size_t count) {
  constexpr size_t kSmall = 4096;  // bytes that the runtime takes without asking
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, sizeof(Tensor), &bytes)) bytes = SIZE_MAX;  // refused
  if (bytes <= kSmall) return std::shared_ptr<void>();
  std::shared_ptr<void> room = HostPool().Reserve(bytes);
  if (room != nullptr) return room;
  return ResourceExhausted("no room for " + std::to_string(count) +
                           " tensors: " + HostPool().Explain(bytes));
}

Result<Tensor> RowsAs(const Tensor& value, int64_t begin, int64_t end, const Shape& shape) {
  if (IsPlainData(value.dtype())) return value.Slice(begin, end).Reshaped(shape);
  MG_ASSIGN_OR_RETURN(Tensor rows, Tensor::Allocate(value.dtype(), shape));
  const auto bytes = static_cast<int64_t>(rows.bytes());
  const int64_t row = end == begin ? 0 : bytes / (end - begin);
  CopyElements(value.dtype(), static_cast<const char*>(value.raw()) + begin * row,
               static_cast<char*>(rows.raw()), static_cast<size_t>(bytes));
  MG_RETURN_IF_ERROR(rows.CountStrings());
  return rows;
}

Status JoinRows(KernelContext& c, int output, std::span<const Tensor> values,
                std::span<const int64_t> dims) {
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  MG_ASSIGN_OR_RETURN(Tensor * joined, c.AllocateOutput(output, shape));
  ops::RowParts parts;
  Looks looks(c);
  for (const Tensor& value : values) {
    if (!looks.GoOn(5)) return StepAborted();
    parts.Add(value.raw(), value.bytes());
  }
  if (OnDevice(c, joined->dtype())) return device_elements.join(c, parts.span(), joined);
  return ops::HostMoves::Join(c, joined->dtype(), parts.span(), 1, joined->raw());
}

}  // namespace monograph
