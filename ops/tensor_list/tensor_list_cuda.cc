// TensorLists of GPUs: a list holds tensors wherever they lie, so the kernels are the CPU's;
// shapes, indices and lengths are on the host, and so are elements of int32. What these kernels
// compute, zeros, sums and rows that are joined, goes by the plug-in's functions
// (UseDeviceElements). What the executor does so that an element stays as it is:
// executor/gpu/segment.h.
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ops/cpu/tensor_util_cpu.h"
#include "ops/gpu/moves.h"
#include "ops/gpu/on_host_cuda.h"
#include "ops/tensor_array/element_memory.h"

namespace monograph::ops::tensor_list {

void RegisterCpu(KernelRegistry* registry);

void RegisterCuda(KernelRegistry* registry) {
  UseDeviceElements(
      {.zero = [](KernelContext& c,
                  Tensor* to) { return tensor_array::ElementsOfGpu().Zero(c, to); },
       .add = [](KernelContext& c, const Tensor& a, const Tensor& b, Tensor* to) -> Status {
         if (IsComplex(a.dtype()))
           return Unimplemented("lists of complex numbers are added up on CPUs alone");
         return tensor_array::ElementsOfGpu().Add(c, a, b, to);
       },
       .join = [](KernelContext& c, std::span<const RowPart> parts,
                  Tensor* to) { return tensor_array::ElementsOfGpu().Join(c, parts, to); }});
  KernelRegistry cpu;
  RegisterCpu(&cpu);
  AddOnHost(registry, cpu, "TensorListLength", {"length"});
  AddOnHost(registry, cpu, "TensorListElementShape", {"element_shape"});
  AddOnHost(registry, cpu, "TensorListResize", {"size"});
  AddOnHost(registry, cpu, "TensorListConcatLists");
  struct Access {
    const char* op;
    std::string tensor;             // on the host if it is of int32
    std::vector<std::string> host;  // beside it
  };
  const Access all[] = {
      {"TensorListPushBack", "tensor", {}},
      {"TensorListPushBackBatch", "tensor", {}},
      {"TensorListPopBack", "tensor", {"element_shape"}},
      {"TensorListGetItem", "item", {"index", "element_shape"}},
      {"TensorListSetItem", "item", {"index"}},
      {"TensorListStack", "tensor", {"element_shape"}},
      {"TensorListGather", "values", {"indices", "element_shape"}},
      {"TensorListConcat", "tensor", {"lengths"}},
      {"TensorListConcatV2", "tensor", {"element_shape", "leading_dims", "lengths"}},
      {"TensorListFromTensor", "tensor", {"element_shape"}},
      {"TensorListSplit", "tensor", {"element_shape", "lengths"}},
      {"TensorListScatter", "tensor", {"indices", "element_shape"}},
      {"TensorListScatterV2", "tensor", {"indices", "element_shape", "num_elements"}},
      {"TensorListScatterIntoExistingList", "tensor", {"indices"}},
  };
  constexpr DType kVariant[] = {DT_VARIANT};
  // A list of what a GPU cannot hold is not begun there.
  for (const std::span<const DType> types :
       std::initializer_list<std::span<const DType>>{kDeviceTypes, kVariant, kHostInt}) {
    AddOnHost(registry, cpu, "EmptyTensorList", {"element_shape", "max_num_elements"},
              "element_dtype", types);
    AddOnHost(registry, cpu, "TensorListReserve", {"element_shape", "num_elements"},
              "element_dtype", types);
  }
  for (const Access& access : all) {
    AddOnHost(registry, cpu, access.op, access.host, "element_dtype", kDeviceTypes);
    AddOnHost(registry, cpu, access.op, access.host, "element_dtype", kVariant);
    std::vector<std::string> host = access.host;
    host.push_back(access.tensor);
    AddOnHost(registry, cpu, access.op, host, "element_dtype", kHostInt);
  }
}

}  // namespace monograph::ops::tensor_list
