// Kernels that move whole elements, of types too that are no plain data.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/cpu/kernel_util.h"

namespace monograph {

// Copies `bytes` bytes of elements between tensors of this type.
inline void CopyElements(DType dtype, const char* from, char* to, size_t bytes) {
  const auto objects = [=]<typename T>(const T* first) {
    std::copy_n(first, bytes / sizeof(T), reinterpret_cast<T*>(to));
  };
  if (dtype == DT_STRING) {
    objects(reinterpret_cast<const std::string*>(from));
  } else if (dtype == DT_RESOURCE) {
    objects(reinterpret_cast<const ResourceHandle*>(from));
  } else if (dtype == DT_VARIANT) {
    objects(reinterpret_cast<const Variant*>(from));
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

// As AddForPlainTypes, for strings too.
template <typename K>
void AddForCopiedTypes(KernelRegistry* registry, const KernelDef& def,
                       const std::string& type_attr = "T") {
  constexpr DType kString[] = {DT_STRING};
  AddForPlainTypes<K>(registry, def, type_attr);
  AddForTypes<K>(registry, def, type_attr, kString);
}

}  // namespace monograph
