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

Result<Variant> VariantValue::ZerosLike(const OfTensor&) const {
  return Unimplemented("there are no zeros like a " + std::string(type_name()));
}

Result<Variant> VariantValue::Add(const VariantValue&, const OfTwo&) const {
  return Unimplemented("a " + std::string(type_name()) + " cannot be added to another");
}

}  // namespace monograph
