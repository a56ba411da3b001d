// Kernels that move whole elements, of types too that are no plain data.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/cpu/kernel_util.h"

namespace monograph {

// Copies `bytes` bytes of elements between tensors of this type, also where nobody counts what
// strings own.
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

// The same into an output: strings only if there is room for what they own.
inline void CopyElements(const KernelContext& c, DType dtype, const char* from, char* to,
                         size_t bytes) {
  if (dtype == DT_STRING) {
    size_t owned = 0;
    const auto* first = reinterpret_cast<const std::string*>(from);
    for (size_t i = 0; i < bytes / sizeof(std::string); ++i) owned += StringBytes(first[i].size());
    if (owned > 0 && !c.RoomForStrings(owned)) return;
  }
  CopyElements(dtype, from, to, bytes);
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
