// What device code needs to move several elements at once.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "ops/gpu/device_code.h"

namespace monograph::ops {

// Elements of T in 16 bytes.
template <typename T>
inline constexpr int kWidth = static_cast<int>(16 / sizeof(T));

template <typename T, int N>
MG_HD inline ElementPack<T, N> LoadPack(const T* from) {
  return *reinterpret_cast<const ElementPack<T, N>*>(from);
}
template <typename T, int N>
MG_HD inline void StorePack(T* to, const ElementPack<T, N>& pack) {
  *reinterpret_cast<ElementPack<T, N>*>(to) = pack;
}

// Whether all may be read kWidth elements at a time, and as many floats. Whole tensors may.
inline bool Aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % 32 != 0) return false;
  }
  return true;
}

}  // namespace monograph::ops
