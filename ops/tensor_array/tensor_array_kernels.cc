// An array is found by the name in its handle, as any resource, and the memory of the handle takes
// it away when the last tensor that shares it goes: at the end of the step at the latest. The
// arrays of its gradients go with it, as several nodes of a gradient, one after the other, ask for
// the same one; their handles keep the array's.
//
// An array holds no handles, not even in lists: it could hold its own, and would never be freed.
//
// Rows that are scattered or split share the memory of the whole; gathered ones are copied once.
#include "ops/tensor_array/tensor_array_kernels.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/kernel_util.h"
#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/tensor_util_cpu.h"
#include "ops/variable/handle_cpu.h"

namespace monograph::ops::tensor_array {
namespace {

using variable::FindResource;
using variable::HandleThatReleases;

// What a row that becomes a tensor costs, in units of Looks.
constexpr int64_t kPerRow = 50;

constexpr char kArrays[] = "_tensor_arrays";
constexpr char kGradients[] = "_tensor_array_grads";

Result<std::shared_ptr<TensorArrayResource>> FindArray(const KernelContext& c) {
  return FindResource<TensorArrayResource>(c);
}

Result<std::shared_ptr<TensorArrayResource>> FindToRead(const KernelContext& c, DType dtype) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorArrayResource> array, FindArray(c));
  if (array->dtype() == dtype) return array;
  return InvalidArgument("TensorArray dtype is " + std::string(DTypeName(array->dtype())) +
                         " but Op requested dtype " + std::string(DTypeName(dtype)) + ".");
}

// To write `value`, or rows of it.
Result<std::shared_ptr<TensorArrayResource>> FindToWrite(const KernelContext& c,
                                                         const Tensor& value) {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorArrayResource> array, FindArray(c));
  MG_RETURN_IF_ERROR(VariantValue::RefuseHandles(value, "TensorArray " + array->name()));
  if (array->dtype() == value.dtype()) return array;
  return InvalidArgument("TensorArray dtype is " + std::string(DTypeName(array->dtype())) +
                         " but Op is trying to write dtype " +
                         std::string(DTypeName(value.dtype())) + ".");
}

Status CheckScalar(const Tensor& tensor, const char* what) {
  if (tensor.shape().rank() == 0) return Status();
  return InvalidArgument("TensorArray " + std::string(what) +
                         " must be scalar, but had shape: " + tensor.shape().ToString());
}

Status CheckVector(const Tensor& tensor, const char* what) {
  if (tensor.shape().rank() == 1) return Status();
  return InvalidArgument("Expected " + std::string(what) +
                         " to be a vector, but received shape: " + tensor.shape().ToString());
}

class GradientKernel : public Kernel {
 public:
  explicit GradientKernel(const KernelConstruction& k)
      : device_(k.device()), source_(k.attr<std::string>("source")) {}

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const ResourceHandle* handle, variable::HandleOf(c, 0));
    if (handle->container != kArrays) {
      return InvalidArgument("Wrong input container. " + handle->container + "/" + handle->name +
                             " is no TensorArray: gradients of gradients have no arrays");
    }
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindArray(c));
    Shape prepended;
    if (c.num_inputs() > 2) {
      MG_ASSIGN_OR_RETURN(prepended, ShapeFrom(c.input(2), "shape_to_prepend"));
    }
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> gradient,
                        array->Gradient(c, source_, prepended));
    const auto found = [&] { return gradient; };
    MG_RETURN_IF_ERROR(c.resources()
                           .FindOrCreate<TensorArrayResource>(kGradients, gradient->name(), found)
                           .status());
    c.set_output(0, HandleThatReleases(device_, kGradients, gradient->name(),
                                       [array_handle = c.input(0)](const ResourceHandle&) {}));
    c.set_output(1, c.input(1));
    return Status();
  }

 private:
  const std::string device_, source_;
};

class WriteKernel : public Kernel {
 public:
  explicit WriteKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    if (!c.may_wait()) return c.Busy();  // it may have to add
    MG_RETURN_IF_ERROR(CheckScalar(c.input(1), "index"));
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array,
                        FindToWrite(c, c.input(2)));
    MG_RETURN_IF_ERROR(array->Write(c, c.input(1).values<int32_t>(), {&c.input(2), 1}));
    c.set_output(0, c.input(3));
    return Status();
  }
};

class ReadKernel : public Kernel {
 public:
  explicit ReadKernel(const KernelConstruction& k) : dtype_(k.attr<DType>("dtype")) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    if (!c.may_wait()) return c.Busy();  // who writes holds the array's lock while it adds
    MG_RETURN_IF_ERROR(CheckScalar(c.input(1), "index"));
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindToRead(c, dtype_));
    MG_ASSIGN_OR_RETURN(std::vector<Tensor> values, array->Read(c, c.input(1).values<int32_t>()));
    c.set_output(0, std::move(values[0]));
    return Status();
  }

 private:
  const DType dtype_;
};

// The values behind each other become output 0, of these dimensions. REQUIRES: as many elements.
Status GiveRows(KernelContext& c, const TensorArrayResource& array, std::span<const Tensor> values,
                std::span<const int64_t> dims) {
  MG_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  MG_ASSIGN_OR_RETURN(Tensor * joined, c.AllocateOutput(0, shape));
  RowParts parts;
  Looks looks(c);
  for (const Tensor& value : values) {
    if (!looks.GoOn(5)) return StepAborted();
    parts.Add(value.raw(), value.bytes());
  }
  return array.memory().Join(c, parts.span(), joined);
}

// "[0] + rest", for an array without elements.
Status GiveNoRows(KernelContext& c, const TensorArrayResource& array, const PartialShape& rest,
                  const std::string& attribute, const std::string& doing) {
  if (!rest.fully_known()) {
    return Unimplemented("TensorArray has size zero, but " + attribute + " " + rest.ToString() +
                         " is not fully defined. Currently only static shapes are supported when " +
                         doing + " zero-size TensorArrays.");
  }
  std::vector<int64_t> dims{0};
  dims.insert(dims.end(), rest.dims().begin(), rest.dims().end());
  return GiveRows(c, array, {}, dims);
}

Result<Tensor> AllIndices(int32_t count) {
  MG_ASSIGN_OR_RETURN(Tensor indices, Tensor::Allocate(DT_INT32, Shape{count}));
  std::iota(indices.data<int32_t>(), indices.data<int32_t>() + count, 0);
  return indices;
}

// `kAll`: TensorArrayPack, which takes no indices.
template <bool kAll>
class GatherKernel : public Kernel {
 public:
  explicit GatherKernel(const KernelConstruction& k)
      : dtype_(k.attr<DType>("dtype")), element_shape_(k.attr<PartialShape>("element_shape")) {}

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindToRead(c, dtype_));
    MG_RETURN_IF_ERROR(array->NarrowElementShape(element_shape_));
    Tensor all;
    if constexpr (kAll) {
      MG_ASSIGN_OR_RETURN(const int32_t size, array->ConcatSize());
      MG_ASSIGN_OR_RETURN(all, AllIndices(size));
    } else {
      MG_RETURN_IF_ERROR(CheckVector(c.input(1), "indices"));
    }
    const auto indices = (kAll ? std::as_const(all) : c.input(1)).values<int32_t>();
    if (indices.empty()) return GiveNoRows(c, *array, element_shape_, "element shape", "packing");
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room, RoomForTensors(indices.size()));
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values, array->Read(c, indices));
    const Shape& first = values[0].shape();
    if (!element_shape_.Accepts(first)) {
      return InvalidArgument("TensorArray was passed element_shape " + element_shape_.ToString() +
                             " which does not match the Tensor at index 0: " + first.ToString());
    }
    Looks looks(c);
    for (size_t i = 1; i < values.size(); ++i) {
      if (!looks.GoOn(10)) return StepAborted();
      if (values[i].shape() == first) continue;
      return InvalidArgument(
          "TensorArray has inconsistent shapes.  Index 0 has shape: " + first.ToString() +
          " but index " + std::to_string(i) + " has shape: " + values[i].shape().ToString());
    }
    std::vector<int64_t> dims{static_cast<int64_t>(values.size())};
    dims.insert(dims.end(), first.dims().begin(), first.dims().end());
    return GiveRows(c, *array, values, dims);
  }

 private:
  const DType dtype_;
  const PartialShape element_shape_;
};

class ConcatKernel : public Kernel {
 public:
  explicit ConcatKernel(const KernelConstruction& k)
      : dtype_(k.attr<DType>("dtype")), rest_(k.attr<PartialShape>("element_shape_except0")) {}

  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindToRead(c, dtype_));
    MG_ASSIGN_OR_RETURN(const int32_t size, array->ConcatSize());
    MG_ASSIGN_OR_RETURN(Tensor * lengths, c.AllocateOutput(1, Shape{size}));
    if (size == 0) return GiveNoRows(c, *array, rest_, "element_shape_except0", "concatenating");
    MG_ASSIGN_OR_RETURN(const Tensor indices, AllIndices(size));
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room,
                        RoomForTensors(static_cast<size_t>(size)));
    MG_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        array->Read(c, indices.values<int32_t>()));
    Shape rest;
    int64_t rows = 0;
    Looks looks(c);
    for (size_t i = 0; i < values.size(); ++i) {
      if (!looks.GoOn(20)) return StepAborted();
      const Shape& shape = values[i].shape();
      if (shape.rank() == 0) {
        return InvalidArgument("Concat saw a scalar shape at index " + std::to_string(i) +
                               " but requires at least vectors.  Did you mean to call pack?");
      }
      const Shape its_rest(shape.dims().subspan(1));
      if (i == 0) rest = its_rest;
      if (!rest_.Accepts(rest)) {
        return InvalidArgument("TensorArray was passed element_shape_except0 " + rest_.ToString() +
                               " but index 0 has (excepting dimension 0) shape: " +
                               rest.ToString() + " which does not match.");
      }
      if (!(its_rest == rest)) {
        return InvalidArgument(
            "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: " +
            rest.ToString() + " but index " + std::to_string(i) +
            " has (excepting dimension 0) shape: " + its_rest.ToString());
      }
      lengths->data<int64_t>()[i] = shape.dim(0);
      if (__builtin_add_overflow(rows, shape.dim(0), &rows))
        return InvalidArgument("the elements together have more rows than 63 bits can count");
    }
    std::vector<int64_t> dims{rows};
    dims.insert(dims.end(), rest.dims().begin(), rest.dims().end());
    return GiveRows(c, *array, values, dims);
  }

 private:
  const DType dtype_;
  const PartialShape rest_;
};

// `kAll`: TensorArrayUnpack, which takes no indices.
template <bool kAll>
class ScatterKernel : public Kernel {
 public:
  explicit ScatterKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const Tensor& value = c.input(kAll ? 1 : 2);
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindToWrite(c, value));
    if (value.shape().rank() == 0) {
      return InvalidArgument(
          "Input value for unpack must be at least a vector but received shape: " +
          value.shape().ToString());
    }
    const int64_t rows = value.shape().dim(0);
    MG_ASSIGN_OR_RETURN(int32_t size, array->Size());
    Tensor all;
    if constexpr (kAll) {
      if (rows < size || (rows > size && !array->dynamic_size())) {
        return InvalidArgument("TensorArray's size is not equal to the size of tensor_value (" +
                               std::to_string(size) + " vs. " + std::to_string(rows) +
                               "), and the TensorArray is not marked as dynamically resizeable");
      }
      if (rows > std::numeric_limits<int32_t>::max())
        return InvalidArgument("a TensorArray cannot have " + std::to_string(rows) + " elements");
      MG_ASSIGN_OR_RETURN(all, AllIndices(static_cast<int32_t>(rows)));
    } else {
      MG_RETURN_IF_ERROR(CheckVector(c.input(1), "indices"));
    }
    const auto where = (kAll ? std::as_const(all) : c.input(1)).values<int32_t>();
    if (static_cast<int64_t>(where.size()) != rows) {
      return InvalidArgument("Expected len(indices) == values.shape[0], but saw: " +
                             std::to_string(where.size()) + " vs. " + std::to_string(rows));
    }
    const int32_t last = rows == 0 ? -1 : *std::max_element(where.begin(), where.end());
    if (last >= size && !array->dynamic_size()) {
      return InvalidArgument("Max scatter index must be < array size (" + std::to_string(last) +
                             " vs. " + std::to_string(size) + ")");
    }
    if (last == std::numeric_limits<int32_t>::max())
      return InvalidArgument("scatter index " + std::to_string(last) + " is too large");
    const Shape shape(value.shape().dims().subspan(1));
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room, RoomForTensors(where.size()));
    std::vector<Tensor> values;
    values.reserve(where.size());
    Looks looks(c);
    for (int64_t i = 0; i < rows; ++i) {
      if (!looks.GoOn(kPerRow)) return StepAborted();
      MG_ASSIGN_OR_RETURN(Tensor row, RowsAs(value, i, i + 1, shape));
      values.push_back(std::move(row));
    }
    MG_RETURN_IF_ERROR(array->Mark(std::max(size, last + 1)));
    MG_RETURN_IF_ERROR(array->Write(c, where, values));
    c.set_output(0, c.input(kAll ? 2 : 3));
    return Status();
  }
};

class SplitKernel : public Kernel {
 public:
  explicit SplitKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    c.AllowCancel();
    const Tensor &value = c.input(1), &lengths = c.input(2);
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindToWrite(c, value));
    MG_RETURN_IF_ERROR(CheckVector(lengths, "lengths"));
    if (value.shape().rank() == 0) {
      return InvalidArgument("Expected value to be at least a vector, but received shape: " +
                             value.shape().ToString());
    }
    const auto parts = lengths.values<int64_t>();
    const int64_t rows = value.shape().dim(0);
    int64_t sum = 0;
    for (const int64_t length : parts) {
      if (length < 0)
        return InvalidArgument("Expected lengths to be at least 0, but saw " +
                               std::to_string(length));
      if (__builtin_add_overflow(sum, length, &sum))
        return InvalidArgument(
            "Expected sum of lengths to be equal to values.shape[0], but it "
            "does not fit in 63 bits");
    }
    if (sum != rows) {
      return InvalidArgument(
          "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is " +
          std::to_string(sum) + " and value's shape is: " + value.shape().ToString());
    }
    MG_ASSIGN_OR_RETURN(const int32_t size, array->Size());
    const auto count = static_cast<int64_t>(parts.size());
    if (count < size || (count > size && !array->dynamic_size())) {
      return InvalidArgument("TensorArray's size is not equal to the size of lengths (" +
                             std::to_string(size) + " vs. " + std::to_string(count) +
                             "), and the TensorArray is not marked as dynamically resizeable");
    }
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<void> room, RoomForTensors(parts.size()));
    std::vector<Tensor> values;
    std::vector<int32_t> indices(parts.size());
    std::iota(indices.begin(), indices.end(), 0);
    values.reserve(parts.size());
    Shape shape = value.shape();
    int64_t begin = 0;
    Looks looks(c);
    for (const int64_t length : parts) {
      if (!looks.GoOn(kPerRow)) return StepAborted();
      shape.set_dim(0, length);
      MG_ASSIGN_OR_RETURN(Tensor part, RowsAs(value, begin, begin + length, shape));
      values.push_back(std::move(part));
      begin += length;
    }
    MG_RETURN_IF_ERROR(array->Mark(static_cast<int32_t>(count)));
    MG_RETURN_IF_ERROR(array->Write(c, indices, values));
    c.set_output(0, c.input(3));
    return Status();
  }
};

class SizeKernel : public Kernel {
 public:
  explicit SizeKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    if (!c.may_wait()) return c.Busy();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindArray(c));
    MG_ASSIGN_OR_RETURN(const int32_t size, array->Size());
    c.set_output(0, Tensor::Scalar(size));
    return Status();
  }
};

class CloseKernel : public Kernel {
 public:
  explicit CloseKernel(const KernelConstruction&) {}
  Status Compute(KernelContext& c) override {
    if (!c.may_wait()) return c.Busy();
    MG_ASSIGN_OR_RETURN(const std::shared_ptr<TensorArrayResource> array, FindArray(c));
    array->Close();
    return Status();
  }
};

}  // namespace

ArrayKernel::ArrayKernel(const KernelConstruction& k, const ElementMemory& flows,
                         const ElementMemory& elements)
    : device_(k.device()),
      flows_(flows),
      spec_{.name = k.attr<std::string>("tensor_array_name"),
            .dtype = k.attr<DType>("dtype"),
            .element_shape = k.attr<PartialShape>("element_shape"),
            .dynamic_size = k.attr<bool>("dynamic_size"),
            .clear_after_read = k.attr<bool>("clear_after_read"),
            .identical_element_shapes = k.attr<bool>("identical_element_shapes"),
            .memory = &elements} {
  if (spec_.name.empty()) spec_.name = k.node_name();
}

Status ArrayKernel::Compute(KernelContext& c) {
  MG_RETURN_IF_ERROR(CheckScalar(c.input(0), "size"));
  const auto size = c.input(0).scalar<int32_t>();
  if (size < 0) return InvalidArgument("Size should be >= 0.");
  if (spec_.dtype == DT_RESOURCE)
    return InvalidArgument("a TensorArray of resource handles is not supported");
  ArraySpec spec = spec_;
  const std::string name = spec.name = variable::NameOfRun(spec_.name, device_);
  MG_ASSIGN_OR_RETURN(Tensor * flow, c.AllocateOutput(1, Shape()));
  MG_RETURN_IF_ERROR(flows_.Zero(c, flow));
  ResourceManager& resources = c.resources();
  const auto made = std::make_shared<TensorArrayResource>(std::move(spec), size);
  MG_RETURN_IF_ERROR(
      resources.FindOrCreate<TensorArrayResource>(kArrays, name, [&] { return made; }).status());
  c.set_output(0, HandleThatReleases(device_, kArrays, name,
                                     [&resources, array = made](const ResourceHandle& handle) {
                                       for (const std::string& gradient : array->GradientNames())
                                         resources.Delete(kGradients, gradient);
                                       resources.Delete(handle.container, handle.name);
                                     }));
  return Status();
}

void RegisterAccess(KernelRegistry* registry) {
  using variable::AddHandleKernel;
  constexpr KernelCost kMovesRows = KernelCost::kExpensive;
  AddHandleKernel<GradientKernel>(registry, "TensorArrayGradV3", kMovesRows);
  AddHandleKernel<GradientKernel>(registry, "TensorArrayGradWithShape", kMovesRows);
  AddHandleKernel<WriteKernel>(registry, "TensorArrayWriteV3");
  AddHandleKernel<ReadKernel>(registry, "TensorArrayReadV3");
  AddHandleKernel<GatherKernel<false>>(registry, "TensorArrayGatherV3", kMovesRows);
  AddHandleKernel<GatherKernel<true>>(registry, "TensorArrayPack", kMovesRows);
  AddHandleKernel<ScatterKernel<false>>(registry, "TensorArrayScatterV3", kMovesRows);
  AddHandleKernel<ScatterKernel<true>>(registry, "TensorArrayUnpack", kMovesRows);
  AddHandleKernel<ConcatKernel>(registry, "TensorArrayConcatV3", kMovesRows);
  AddHandleKernel<SplitKernel>(registry, "TensorArraySplitV3", kMovesRows);
  AddHandleKernel<SizeKernel>(registry, "TensorArraySizeV3");
  AddHandleKernel<CloseKernel>(registry, "TensorArrayCloseV3");
}

}  // namespace monograph::ops::tensor_array
