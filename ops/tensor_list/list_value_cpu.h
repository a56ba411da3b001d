// TensorList: the value of a variant that is a list of tensors, as TensorFlow's class of that name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/shape.h"
#include "base/tensor.h"
#include "base/variant.h"

namespace monograph::ops::tensor_list {

class TensorList : public VariantValue {
 public:
  struct Spec {
    DType dtype = DT_INVALID;
    PartialShape shape;         // that every element has
    int32_t max_elements = -1;  // -1: any number
  };
  explicit TensorList(Spec spec) : spec_(std::move(spec)) {}

  const Spec& spec() const { return spec_; }
  // Those that nobody has set are not valid().
  std::span<const Tensor> elements() const { return elements_; }

  // `size` elements: the last ones go, or new ones are not set. ResourceExhausted if there is no
  // memory for so many.
  Status Resize(int64_t size);
  Status Push(Tensor element);
  Status Set(size_t index, Tensor element);  // REQUIRES: index < elements().size()
  void Pop() { elements_.pop_back(); }       // REQUIRES: !elements().empty()
  Result<std::shared_ptr<TensorList>> Copy() const;

  std::string_view type_name() const override { return "tensorflow::TensorList"; }
  int nesting() const override { return nesting_; }
  bool holds_handles() const override { return holds_handles_; }
  Result<Variant> ZerosLike(const OfTensor& of) const override;
  Result<Variant> Add(const VariantValue& other, const OfTwo& sum) const override;

 private:
  Status Reserve(size_t count);

  const Spec spec_;
  std::vector<Tensor> elements_;
  std::shared_ptr<void> room_;  // of elements_, in the process's limit of memory
  // Never less, also where elements go.
  int nesting_ = 1;
  bool holds_handles_ = false;
};

}  // namespace monograph::ops::tensor_list
