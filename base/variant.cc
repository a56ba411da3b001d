#include "base/variant.h"

#include <algorithm>

#include "base/tensor.h"

namespace monograph {

Result<int> VariantValue::NestingAround(const Tensor& held) {
  int within = 0;
  for (int64_t i = 0; held.dtype() == DT_VARIANT && i < held.elements(); ++i) {
    if (held.variants()[i] != nullptr) within = std::max(within, held.variants()[i]->nesting());
  }
  if (within < kMostNested) return within + 1;
  return InvalidArgument("variants lie in each other more than " + std::to_string(kMostNested) +
                         " deep");
}

bool VariantValue::HoldsHandles(const Tensor& held) {
  if (held.dtype() == DT_RESOURCE) return true;
  bool found = false;
  for (int64_t i = 0; held.dtype() == DT_VARIANT && i < held.elements() && !found; ++i)
    found = held.variants()[i] != nullptr && held.variants()[i]->holds_handles();
  return found;
}

Status VariantValue::RefuseHandles(const Tensor& held, std::string_view what) {
  if (!HoldsHandles(held)) return Status();
  return InvalidArgument(std::string(what) +
                         " cannot hold resource handles, also in lists or optional values: it "
                         "could hold its own, and would then never be freed");
}

Result<Variant> VariantValue::ZerosLike(const OfTensor&) const {
  return Unimplemented("there are no zeros like a " + std::string(type_name()));
}

Result<Variant> VariantValue::Add(const VariantValue&, const OfTwo&) const {
  return Unimplemented("a " + std::string(type_name()) + " cannot be added to another");
}

}  // namespace monograph
