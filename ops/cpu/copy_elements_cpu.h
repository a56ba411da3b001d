// Kernels that move whole elements, strings too.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/cpu/kernel_util.h"

namespace monograph {

// Copies `bytes` bytes of elements between tensors of this type, plain data or strings.
inline void CopyElements(DType dtype, const char* from, char* to, size_t bytes) {
  if (dtype == DT_STRING) {
    std::copy_n(reinterpret_cast<const std::string*>(from), bytes / sizeof(std::string),
                reinterpret_cast<std::string*>(to));
  } else {
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
