// An array of the length that the program asks for takes memory only up to the last element that
// was touched, and that within the process's limit: a length or an index is a number that anybody
// may write. Sums and zeros are made with the lock held, as writers of one element must take turns
// and the order of writers to different ones is that of the flow.
//
// An array is of one step and goes with it: where the step is aborted a call returns at once, and
// the array has what was written, read and added up to there.
#include "ops/tensor_array/tensor_array_resource.h"

#include <algorithm>

#include "ops/cpu/looks_cpu.h"
#include "ops/cpu/reserve_cpu.h"
#include "ops/cpu/tensor_util_cpu.h"

namespace monograph::ops::tensor_array {
namespace {

// What one element costs, in units of Looks.
constexpr int64_t kPerElement = 100;

std::string Index(int32_t index) { return "TensorArray index " + std::to_string(index); }

}  // namespace

TensorArrayResource::TensorArrayResource(ArraySpec spec, int32_t size)
    : name_(std::move(spec.name)),
      dtype_(spec.dtype),
      memory_(*spec.memory),
      clear_after_read_(spec.clear_after_read),
      identical_element_shapes_(spec.identical_element_shapes),
      is_gradient_(spec.is_gradient),
      element_shape_(spec.element_shape),
      dynamic_size_(spec.dynamic_size),
      marked_size_(spec.marked_size),
      size_(static_cast<size_t>(size)) {}

Status TensorArrayResource::Wrong(const std::string& what) const {
  return InvalidArgument("TensorArray " + name_ + what);
}

Status TensorArrayResource::CheckOpen() const {
  return closed_ ? Wrong(" has already been closed.") : Status();
}

Status TensorArrayResource::Lengthen(const KernelContext& c, size_t elements) {
  if (elements <= elements_.size()) return Status();
  if (elements > elements_.capacity()) {
    size_t wanted = std::max(elements, 2 * elements_.capacity());
    // Most arrays are filled: those of a fixed length, and not a long one, get it at once.
    const size_t all = std::max(elements, size_);
    if (!dynamic_size_ && (all <= wanted || all * sizeof(Element) <= kUnasked)) wanted = all;
    MG_RETURN_IF_ERROR(ReserveWithin(&elements_, wanted, &room_)
                           .WithContext("TensorArray " + name_ + " has no room for " +
                                        std::to_string(elements) + " elements"));
  }
  Looks looks(c);
  while (elements_.size() < elements) {
    const size_t more = std::min<size_t>(elements - elements_.size(), 1024);
    if (!looks.GoOn(static_cast<int64_t>(more) * kPerElement)) return StepAborted();
    elements_.resize(elements_.size() + more);
  }
  return Status();
}

Status TensorArrayResource::Write(KernelContext& c, std::span<const int32_t> indices,
                                  std::span<const Tensor> values) {
  Looks looks(c);
  MutexLock lock(mutex_);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!looks.GoOn(kPerElement)) return StepAborted();
    MG_RETURN_IF_ERROR(WriteElement(c, indices[i], values[i]));
  }
  return CheckOpen();
}

Status TensorArrayResource::WriteElement(KernelContext& c, int32_t index, const Tensor& value) {
  MG_RETURN_IF_ERROR(CheckOpen());
  const auto at = static_cast<size_t>(index);
  if (index < 0 || (!dynamic_size_ && at >= size_)) {
    return Wrong(": Tried to write to index " + std::to_string(index) +
                 " but array is not resizeable and size is: " + std::to_string(size_));
  }
  MG_RETURN_IF_ERROR(Lengthen(c, at + 1));
  size_ = std::max(size_, at + 1);
  Element& element = elements_[at];
  const std::string no = ": Could not write to " + Index(index) + " because ";
  if (value.dtype() != dtype_) {
    return Wrong(no + "the value dtype is " + std::string(DTypeName(value.dtype())) +
                 " but TensorArray dtype is " + std::string(DTypeName(dtype_)) + ".");
  }
  if (!element_shape_.Accepts(value.shape())) {
    return Wrong(no + "the value shape is " + value.shape().ToString() +
                 " which is incompatible with the TensorArray's inferred element shape: " +
                 element_shape_.ToString() + " (consider setting infer_shape=False).");
  }
  if (identical_element_shapes_ && !element_shape_.fully_known()) element_shape_ = value.shape();
  if (element.read) return Wrong(no + "it has already been read.");
  if (element.written) {
    return is_gradient_ ? AddTo(c, &element, value) : Wrong(no + "it has already been written to.");
  }
  element.tensor = value;
  element.shape = value.shape();
  element.written = true;
  return Status();
}

Status TensorArrayResource::AddTo(KernelContext& c, Element* element, const Tensor& value) {
  if (!(value.shape() == element->shape)) {
    return Wrong(": Could not aggregate to " +
                 Index(static_cast<int32_t>(element - elements_.data())) +
                 " because the existing shape is " + element->shape.ToString() +
                 " but the new input shape is " + value.shape().ToString() + ".");
  }
  if (!element->tensor.valid() || element->tensor.elements() == 0) {
    element->tensor = value;
    return Status();
  }
  if (!CanAdd(dtype_)) {
    return InvalidArgument("tensor_array::AddToTensor type not supported: " +
                           std::string(DTypeName(dtype_)));
  }
  Tensor to = element->tensor;
  if (!element->own) {
    MG_ASSIGN_OR_RETURN(to, memory_.Allocate(c, dtype_, element->shape));
  }
  MG_RETURN_IF_ERROR(memory_.Add(c, element->tensor, value, &to));
  element->tensor = std::move(to);
  element->own = true;
  return Status();
}

Result<Tensor> TensorArrayResource::Zeros(KernelContext& c, const Shape& shape) const {
  MG_ASSIGN_OR_RETURN(Tensor zeros, memory_.Allocate(c, dtype_, shape));
  if (IsPlainData(dtype_)) MG_RETURN_IF_ERROR(memory_.Zero(c, &zeros));
  return zeros;
}

Result<std::vector<Tensor>> TensorArrayResource::Read(KernelContext& c,
                                                      std::span<const int32_t> indices) {
  std::vector<Tensor> values;
  values.reserve(indices.size());
  Tensor zeros;
  Looks looks(c);
  MutexLock lock(mutex_);
  for (const int32_t index : indices) {
    if (!looks.GoOn(kPerElement)) return StepAborted();
    MG_ASSIGN_OR_RETURN(Tensor value, ReadElement(c, index, &zeros));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Tensor> TensorArrayResource::ReadElement(KernelContext& c, int32_t index, Tensor* zeros) {
  MG_RETURN_IF_ERROR(CheckOpen());
  const auto at = static_cast<size_t>(index);
  if (index < 0 || (!is_gradient_ && at >= size_)) {
    return InvalidArgument("Tried to read from index " + std::to_string(index) +
                           " but array size is: " + std::to_string(size_));
  }
  const bool there = at < elements_.size();
  if (!there || !elements_[at].written) {
    // Where no gradient came to a gradient's element, and where the program left out one of its
    // own, the element is zero.
    Shape shape;
    if (is_gradient_ && there && elements_[at].shape.rank() > 0) {
      shape = elements_[at].shape;
    } else if (element_shape_.fully_known()) {
      shape = element_shape_.AsShape();
    } else {
      return Wrong(
          ": Could not read from " + Index(index) +
          ".  Furthermore, the element shape is not fully defined: " + element_shape_.ToString() +
          ".  It is possible you are working with a resizeable TensorArray and "
          "stop_gradients is not allowing the gradients to be written.  If you set the "
          "full element_shape property on the forward TensorArray, the proper all-zeros "
          "tensor will be returned instead of incurring this error.");
    }
    MG_RETURN_IF_ERROR(Lengthen(c, at + 1));
    Looks looks(c);
    for (; size_ <= at; ++size_) {
      if (!looks.GoOn(kPerElement)) return StepAborted();
      elements_[size_].shape = shape;
      elements_[size_].written = true;
    }
    elements_[at].shape = shape;
    elements_[at].written = true;
  }
  Element& element = elements_[at];
  if (element.cleared) {
    return Wrong(": Could not read index " + std::to_string(index) +
                 " twice because it was cleared after a previous read (perhaps try setting "
                 "clear_after_read = false?).");
  }
  if (!element.tensor.valid()) {
    if (!zeros->valid() || !(zeros->shape() == element.shape)) {
      if (dtype_ != DT_BOOL && !CanAdd(dtype_) && element.shape.elements() > 0) {
        return InvalidArgument("tensor_array::TensorSetZero type not supported: " +
                               std::string(DTypeName(dtype_)));
      }
      MG_ASSIGN_OR_RETURN(*zeros, Zeros(c, element.shape));
    }
    element.tensor = *zeros;
  }
  Tensor value = element.tensor;
  if (clear_after_read_) {
    element.tensor.Reset();
    element.cleared = true;
  }
  element.read = true;
  return value;
}

Result<int32_t> TensorArrayResource::Size() const {
  MutexLock lock(mutex_);
  MG_RETURN_IF_ERROR(CheckOpen());
  return static_cast<int32_t>(size_);
}

Result<int32_t> TensorArrayResource::ConcatSize() const {
  MutexLock lock(mutex_);
  MG_RETURN_IF_ERROR(CheckOpen());
  if (!is_gradient_) return static_cast<int32_t>(size_);
  if (marked_size_ >= 0) return marked_size_;
  return Wrong(" holds gradients of an array that nothing was split or scattered into");
}

bool TensorArrayResource::dynamic_size() const {
  MutexLock lock(mutex_);
  return dynamic_size_;
}

Status TensorArrayResource::Mark(int32_t size) {
  MutexLock lock(mutex_);
  MG_RETURN_IF_ERROR(CheckOpen());
  if (!is_gradient_) marked_size_ = size;
  return Status();
}

Status TensorArrayResource::NarrowElementShape(const PartialShape& with) {
  MutexLock lock(mutex_);
  MG_ASSIGN_OR_RETURN(element_shape_, PartialShape::Merge(element_shape_, with));
  return Status();
}

Result<std::shared_ptr<TensorArrayResource>> TensorArrayResource::Gradient(
    const KernelContext& c, const std::string& source, const Shape& prepended) {
  const auto behind = [&](std::span<const int64_t> dims) {
    std::vector<int64_t> all(prepended.dims().begin(), prepended.dims().end());
    all.insert(all.end(), dims.begin(), dims.end());
    return all;
  };
  MutexLock lock(mutex_);
  dynamic_size_ = false;
  MG_RETURN_IF_ERROR(CheckOpen());
  std::shared_ptr<TensorArrayResource>& gradient = gradients_[source];
  if (gradient != nullptr) return gradient;
  ArraySpec spec = {.name = name_ + "@" + source,
                    .dtype = dtype_,
                    .identical_element_shapes = identical_element_shapes_,
                    .is_gradient = true,
                    .marked_size = marked_size_,
                    .memory = &memory_};
  if (element_shape_.known_rank()) {
    if (prepended.rank() + element_shape_.rank() > kMaxRank) {
      return Wrong(": elements of shape " + element_shape_.ToString() + " with " +
                   prepended.ToString() + " in front have more than " + std::to_string(kMaxRank) +
                   " dimensions");
    }
    spec.element_shape = PartialShape(behind(element_shape_.dims()));
  }
  auto made = std::make_shared<TensorArrayResource>(std::move(spec), static_cast<int32_t>(size_));
  MutexLock its_lock(made->mutex_);
  MG_RETURN_IF_ERROR(made->Lengthen(c, elements_.size()));
  Looks looks(c);
  for (size_t i = 0; i < elements_.size(); ++i) {
    if (!looks.GoOn(kPerElement)) return StepAborted();
    if (!elements_[i].written) continue;
    MG_ASSIGN_OR_RETURN(made->elements_[i].shape, Shape::Make(behind(elements_[i].shape.dims())));
    made->elements_[i].written = true;
  }
  return gradient = std::move(made);
}

std::vector<std::string> TensorArrayResource::GradientNames() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [source, gradient] : gradients_)
    if (gradient != nullptr) names.push_back(gradient->name());
  return names;
}

void TensorArrayResource::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  elements_ = {};
  room_ = nullptr;
}

}  // namespace monograph::ops::tensor_array
