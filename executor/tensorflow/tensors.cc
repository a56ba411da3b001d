// Into the library a tensor goes as a view of our memory, which our reference keeps until the
// library gives it back, or which the library copies if it is not aligned; strings become views of
// their bytes. Out of it a tensor keeps the library's memory, unless the library goes on to read
// that; strings are copied.
#include "executor/tensorflow/tensors.h"

#include <algorithm>
#include <utility>

#include "graph/structural_ops.h"

namespace monograph::tensorflow {
namespace {

// One per thread: each call that may fail wants one.
TF_Status* ThreadStatus(const Library& library) {
  thread_local TF_Status* const status = library->TF_NewStatus();
  return status;
}

// Strings of the library's that are views of ours.
struct StringViews {
  Buffer source;  // holds what they are views of
  const Library* library;
  std::vector<TfString> strings;
};

TF_Tensor* NewTensor(const Library& library, const Tensor& tensor) {
  int64_t dims[kMaxRank];
  const Shape& shape = tensor.shape();
  for (int i = 0; i < shape.rank(); ++i) dims[i] = shape.dim(i);
  if (tensor.dtype() != DT_STRING) {
    // Never written to: the library does not own the memory, so it computes nothing in place there.
    return library->TF_NewTensor(
        tensor.dtype(), dims, shape.rank(), const_cast<void*>(tensor.raw()), tensor.bytes(),
        [](void*, size_t, void* held) { delete static_cast<Buffer*>(held); },
        new Buffer(tensor.buffer()));
  }
  const auto count = static_cast<size_t>(tensor.elements());
  auto* views = new StringViews{tensor.buffer(), &library, std::vector<TfString>(count)};
  for (size_t i = 0; i < count; ++i) {
    const std::string& text = tensor.strings()[i];
    library->TF_StringInit(&views->strings[i]);
    library->TF_StringAssignView(&views->strings[i], text.data(), text.size());
  }
  return library->TF_NewTensor(
      DT_STRING, dims, shape.rank(), views->strings.data(), count * sizeof(TfString),
      [](void*, size_t, void* argument) {
        auto* held = static_cast<StringViews*>(argument);
        for (TfString& text : held->strings) (*held->library)->TF_StringDealloc(&text);
        delete held;
      },
      views);
}

Result<Shape> ShapeFrom(std::vector<int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) {
    return Unimplemented("TensorFlow gives a tensor of " + std::to_string(dims.size()) +
                         " dimensions; at most " + std::to_string(kMaxRank) + " are supported");
  }
  return Shape::Make(dims);
}

Result<Tensor> VariantOf(const Library& library, TFE_TensorHandle* handle) {
  TF_Status* const status = ThreadStatus(library);
  std::vector<int64_t> dims(
      static_cast<size_t>(std::max(0, library->TFE_TensorHandleNumDims(handle, status))));
  for (size_t i = 0; i < dims.size(); ++i)
    dims[i] = library->TFE_TensorHandleDim(handle, static_cast<int>(i), status);
  const Variant value = std::make_shared<BorrowedVariant>(library, handle);
  MG_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(std::move(dims)));
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DT_VARIANT, shape));
  std::fill_n(tensor.variants(), tensor.elements(), value);
  return tensor;
}

Result<Tensor> StringsOf(const Library& library, const TF_Tensor* from, const Shape& shape) {
  MG_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(DT_STRING, shape));
  const auto* strings = static_cast<const TfString*>(library->TF_TensorData(from));
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.strings()[i].assign(library->TF_StringGetDataPointer(&strings[i]),
                               library->TF_StringGetSize(&strings[i]));
  }
  return tensor;
}

}  // namespace

BorrowedResource::BorrowedResource(const Library& library, TFE_TensorHandle* handle, std::string op,
                                   bool owned)
    : library_(library), handle_(handle), op_(std::move(op)), owned_(owned) {}

BorrowedResource::~BorrowedResource() {
  if (owned_) {
    TF_Status* const status = ThreadStatus(library_);
    TFE_Op* const op = library_->TFE_NewOp(library_.context(), kDestroyResourceOp, status);
    library_->TFE_OpAddInput(op, handle_, status);
    int count = 0;
    library_->TFE_Execute(op, nullptr, &count, status);  // it may be gone already
    library_->TFE_DeleteOp(op);
  }
  library_->TFE_DeleteTensorHandle(handle_);
}

InputHandle::InputHandle(InputHandle&& other) noexcept
    : library_(other.library_),
      handle_(std::exchange(other.handle_, nullptr)),
      lent_(other.lent_),
      holder_(std::move(other.holder_)) {}

InputHandle::~InputHandle() {
  if (handle_ != nullptr && !lent_) library_->TFE_DeleteTensorHandle(handle_);
}

Result<InputHandle> InputHandle::Make(const Library& library, const Tensor& tensor,
                                      const ResourceManager& resources) {
  if (tensor.dtype() == DT_VARIANT) {
    const Variant first = tensor.elements() > 0 ? *tensor.variants() : nullptr;
    const auto borrowed = std::dynamic_pointer_cast<BorrowedVariant>(first);
    const bool whole = borrowed != nullptr &&
                       library->TFE_TensorHandleNumElements(
                           borrowed->handle(), ThreadStatus(library)) == tensor.elements() &&
                       std::all_of(tensor.variants(), tensor.variants() + tensor.elements(),
                                   [&](const Variant& one) { return one == first; });
    if (!whole) {
      return InvalidArgument("TensorFlow's kernel takes only variants of TensorFlow's, not " +
                             tensor.ToString());
    }
    InputHandle made(library, borrowed->handle());
    made.lent_ = true;
    made.holder_ = borrowed;
    return made;
  }
  if (tensor.dtype() == DT_RESOURCE) {
    if (tensor.elements() != 1)
      return Unimplemented("TensorFlow's kernels get one resource by each input, not " +
                           std::to_string(tensor.elements()));
    const ResourceHandle& name = *tensor.handles();
    Result<std::shared_ptr<BorrowedResource>> resource =
        resources.Find<BorrowedResource>(name.container, name.name);
    if (!resource.ok())
      return resource.status().WithContext("TensorFlow's kernel needs a resource of TensorFlow's");
    InputHandle made(library, (*resource)->handle());
    made.lent_ = true;
    made.holder_ = *std::move(resource);
    return made;
  }
  TF_Status* const status = ThreadStatus(library);
  TF_Tensor* const made = NewTensor(library, tensor);
  TFE_TensorHandle* const handle = library->TFE_NewTensorHandle(made, status);
  library->TF_DeleteTensor(made);
  if (handle == nullptr) return library.StatusOf(status);
  return InputHandle(library, handle);
}

Result<Tensor> TensorOf(const Library& library, TFE_TensorHandle* handle, DType dtype) {
  if (dtype == DT_VARIANT) return VariantOf(library, handle);
  TF_Status* const status = ThreadStatus(library);
  TF_Tensor* tensor = library->TFE_TensorHandleResolve(handle, status);
  library->TFE_DeleteTensorHandle(handle);
  if (tensor == nullptr) return library.StatusOf(status);
  // MaybeMove succeeds only if we hold the last reference; then the tensor may be written to.
  TF_Tensor* const moved = library->TF_TensorMaybeMove(tensor);
  if (moved != nullptr) tensor = moved;
  const auto release = [&library, tensor] { library->TF_DeleteTensor(tensor); };
  std::vector<int64_t> dims(static_cast<size_t>(library->TF_NumDims(tensor)));
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = library->TF_Dim(tensor, static_cast<int>(i));
  const Result<Shape> shape = ShapeFrom(std::move(dims));
  Status fits = shape.status();
  if (fits.ok() && library->TF_TensorType(tensor) != dtype)
    fits = Internal("TensorFlow gave another type than " + std::string(DTypeName(dtype)));
  if (fits.ok() && dtype != DT_STRING && !IsPlainData(dtype))
    fits = Unimplemented("tensors of type " + std::string(DTypeName(dtype)) + " are not supported");
  if (!fits.ok() || dtype == DT_STRING) {
    Result<Tensor> result = fits.ok() ? StringsOf(library, tensor, *shape) : Result<Tensor>(fits);
    release();
    return result;
  }
  void* const data = library->TF_TensorData(tensor);
  const size_t bytes = library->TF_TensorByteSize(tensor);
  Tensor made(dtype, *shape, Buffer::Wrap(data, bytes, release));
  // Otherwise the library still reads this memory: hand out a copy.
  if (moved == nullptr) return made.Clone();
  return made;
}

}  // namespace monograph::tensorflow
