// Variant: what an element of a DT_VARIANT tensor holds: a value of a class that only some ops know
// (a list of tensors, an optional value). It is counted and lies in host memory.
//
// Values are shared. Change one only if yours is the only reference, in the only tensor that holds
// it; else make a new one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

class Tensor;
class VariantValue;
using Variant = std::shared_ptr<VariantValue>;  // nullptr: no value yet

class VariantValue {
 public:
  virtual ~VariantValue() = default;
  // What TensorFlow calls the type: "tensorflow::TensorList".
  virtual std::string_view type_name() const = 0;

  // Nesting depth: 1 of a value that holds no variants. At most kMostNested, because destruction
  // recurses.
  virtual int nesting() const { return 1; }
  static constexpr int kMostNested = 100;
  // That of a value which holds this tensor. InvalidArgument if it is too deep.
  static Result<int> NestingAround(const Tensor& held);

  // Whether it holds resource handles, itself or in variants that it holds.
  virtual bool holds_handles() const { return false; }
  static bool HoldsHandles(const Tensor& held);
  // InvalidArgument "`what` cannot hold resource handles, ..." for such a tensor: a resource that
  // is freed with the last of its handles never would be if it held one itself.
  static Status RefuseHandles(const Tensor& held, std::string_view what);

  // What ops on tensors of any type do with the tensors that a value holds: `of` and `sum` are
  // given them one by one. Unimplemented unless the class says otherwise.
  using OfTensor = std::function<Result<Tensor>(const Tensor&)>;
  using OfTwo = std::function<Result<Tensor>(const Tensor&, const Tensor&)>;
  virtual Result<Variant> ZerosLike(const OfTensor& of) const;
  virtual Result<Variant> Add(const VariantValue& other, const OfTwo& sum) const;
};

}  // namespace monograph
