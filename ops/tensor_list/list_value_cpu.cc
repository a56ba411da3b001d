#include "ops/tensor_list/list_value_cpu.h"

#include <algorithm>
#include <string>

#include "ops/cpu/reserve_cpu.h"

namespace monograph::ops::tensor_list {

Status TensorList::Reserve(size_t count) {
  if (count <= elements_.capacity()) return Status();
  return ReserveWithin(&elements_, std::max(count, 2 * elements_.capacity()), &room_)
      .WithContext("no room for a list of " + std::to_string(count) + " tensors");
}

Status TensorList::Resize(int64_t size) {
  MG_RETURN_IF_ERROR(Reserve(static_cast<size_t>(size)));
  elements_.resize(static_cast<size_t>(size));
  return Status();
}

Status TensorList::Push(Tensor element) {
  MG_RETURN_IF_ERROR(Resize(static_cast<int64_t>(elements_.size()) + 1));
  return Set(elements_.size() - 1, std::move(element));
}

Status TensorList::Set(size_t index, Tensor element) {
  MG_ASSIGN_OR_RETURN(const int nesting, NestingAround(element));
  nesting_ = std::max(nesting_, nesting);
  holds_handles_ = holds_handles_ || HoldsHandles(element);
  elements_[index] = std::move(element);
  return Status();
}

Result<std::shared_ptr<TensorList>> TensorList::Copy() const {
  auto copy = std::make_shared<TensorList>(spec_);
  MG_RETURN_IF_ERROR(copy->Reserve(elements_.size()));
  copy->elements_.assign(elements_.begin(), elements_.end());
  copy->nesting_ = nesting_;
  copy->holds_handles_ = holds_handles_;
  return copy;
}

Result<Variant> TensorList::ZerosLike(const OfTensor& of) const {
  MG_ASSIGN_OR_RETURN(std::shared_ptr<TensorList> zeros, Copy());
  for (Tensor& element : zeros->elements_) {
    MG_ASSIGN_OR_RETURN(element, of(element));
  }
  return Variant(std::move(zeros));
}

Result<Variant> TensorList::Add(const VariantValue& other, const OfTwo& sum) const {
  const auto differ = [](const std::string& what, const std::string& a, const std::string& b) {
    return InvalidArgument("Trying to add two lists of tensors " + what + ". One is " + a +
                           " and the other is " + b);
  };
  const auto* const list = dynamic_cast<const TensorList*>(&other);
  if (list == nullptr) {
    return InvalidArgument("Trying to add a list of tensors and a " +
                           std::string(other.type_name()));
  }
  const Spec& its = list->spec_;
  if (its.dtype != spec_.dtype) {
    return differ("of different dtypes", std::string(DTypeName(spec_.dtype)),
                  std::string(DTypeName(its.dtype)));
  }
  const Result<PartialShape> shape = PartialShape::Merge(spec_.shape, its.shape);
  if (!shape.ok()) {
    return differ("with incompatible element shapes", spec_.shape.ToString(), its.shape.ToString());
  }
  if (list->elements_.size() != elements_.size()) {
    return differ("with different lengths", std::to_string(elements_.size()),
                  std::to_string(list->elements_.size()));
  }
  auto total = std::make_shared<TensorList>(Spec{spec_.dtype, *shape});
  MG_RETURN_IF_ERROR(total->Resize(static_cast<int64_t>(elements_.size())));
  for (size_t i = 0; i < elements_.size(); ++i) {
    MG_ASSIGN_OR_RETURN(Tensor element, sum(elements_[i], list->elements_[i]));
    MG_RETURN_IF_ERROR(total->Set(i, std::move(element)));
  }
  return Variant(std::move(total));
}

}  // namespace monograph::ops::tensor_list
