// TensorArrays of GPUs: handles, indices and lengths are on the host, and so are elements of int32.
// The others lie in the device's memory: writing one stores the tensor that the node was given,
// scattered and split rows are views, and only gathers, sums and zeros launch something. What the
// executor does so that a stored tensor stays as it is: executor/gpu/segment.h.
#include <span>
#include <string>
#include <vector>

#include "ops/gpu/launch.h"
#include "ops/gpu/on_host_cuda.h"
#include "ops/tensor_array/tensor_array_kernels.h"

namespace monograph::ops::tensor_array {

void RegisterCpu(KernelRegistry* registry);

namespace {

template <typename T>
struct AddBody {
  const T *a, *b;
  T* to;
  MG_HD void operator()(int64_t i) const {
    to[i] = Narrow<T>(static_cast<Accumulator<T>>(Widen(a[i]) + Widen(b[i])));
  }
};

template <typename T>
Status Sum(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to) {
  return ForEach(c, to->elements(), AddBody<T>{a.data<T>(), b.data<T>(), to->data<T>()});
}

class DeviceElements : public ElementMemory {
 public:
  Result<Tensor> Allocate(KernelContext& c, DType dtype, const Shape& shape) const override {
    return Tensor::Allocate(dtype, shape, c.allocator());
  }
  Status Zero(KernelContext& c, Tensor* to) const override {
    return DeviceMoves::Zero(c, to->raw(), to->bytes());
  }
  Status Add(KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to) const override {
    switch (to->dtype()) {
      case DT_FLOAT:
        return Sum<float>(c, a, b, to);
      case DT_DOUBLE:
        return Sum<double>(c, a, b, to);
      case DT_HALF:
        return Sum<half>(c, a, b, to);
      case DT_BFLOAT16:
        return Sum<bfloat16>(c, a, b, to);
      default:
        break;
    }
    // Sums of whole numbers wrap: those of one size have the same bits.
    switch (DTypeSize(to->dtype())) {
      case 1:
        return Sum<uint8_t>(c, a, b, to);
      case 2:
        return Sum<uint16_t>(c, a, b, to);
      case 4:
        return Sum<uint32_t>(c, a, b, to);
      default:
        return Sum<uint64_t>(c, a, b, to);
    }
  }
  Status Join(KernelContext& c, std::span<const RowPart> parts, Tensor* to) const override {
    return DeviceMoves::Join(c, to->dtype(), parts, 1, to->raw());
  }
};

class DeviceArrayKernel : public ArrayKernel {
 public:
  explicit DeviceArrayKernel(const KernelConstruction& k)
      : ArrayKernel(k, ElementsOfGpu(),
                    k.attr<DType>("dtype") == DT_INT32 ? HostElementsOfGpu() : ElementsOfGpu()) {}
};

}  // namespace

const ElementMemory& ElementsOfGpu() {
  static const DeviceElements elements;
  return elements;
}

void RegisterCuda(KernelRegistry* registry) {
  KernelDef array{.op = "TensorArrayV3", .device = kGpu, .host_args = {"size", "handle"}};
  array.replayable = false;
  for (const auto& types : {std::span<const DType>(kDeviceTypes), std::span<const DType>(kHostInt)})
    AddForTypes<DeviceArrayKernel>(registry, array, "dtype", types);
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "TensorArrayGradV3", {"grad_handle"});
  AddOnHost(registry, cpu, "TensorArrayGradWithShape", {"grad_handle", "shape_to_prepend"});
  AddOnHost(registry, cpu, "TensorArraySizeV3", {"size"});
  AddOnHost(registry, cpu, "TensorArrayCloseV3");
  struct Access {
    const char *op, *type;
    std::vector<std::string> host;  // beside the value where that is of int32
  };
  const Access all[] = {{"TensorArrayWriteV3", "T", {"index"}},
                        {"TensorArrayReadV3", "dtype", {"index"}},
                        {"TensorArrayGatherV3", "dtype", {"indices"}},
                        {"TensorArrayScatterV3", "T", {"indices"}},
                        {"TensorArrayConcatV3", "dtype", {"lengths"}},
                        {"TensorArraySplitV3", "T", {"lengths"}},
                        {"TensorArrayPack", "dtype", {}},
                        {"TensorArrayUnpack", "T", {}}};
  for (const Access& access : all) {
    AddOnHost(registry, cpu, access.op, access.host, access.type, kDeviceTypes);
    std::vector<std::string> host = access.host;
    host.push_back("value");
    AddOnHost(registry, cpu, access.op, host, access.type, kHostInt);
  }
}

}  // namespace monograph::ops::tensor_array
