// What device code needs to move several elements at once.
#pragma once

#include <bit>
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
// To global memory. Whole packs of 16 bytes are stored by an instruction that says so: nvcc takes
// an assignment apart, and puts it together again only here and there
// (tests/gpu/machine_code_test.py).
template <typename T, int N>
MG_HD inline void StorePack(T* to, const ElementPack<T, N>& pack) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(pack) % 16 == 0) {
    struct Words {
      uint32_t at[sizeof(pack) / 4];
    };
    const auto words = std::bit_cast<Words>(pack);
    const auto address = __cvta_generic_to_global(to);
    MG_UNROLL
    for (int k = 0; k < static_cast<int>(sizeof(pack) / 4); k += 4) {
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address + k * 4u),
                   "r"(words.at[k]), "r"(words.at[k + 1]), "r"(words.at[k + 2]),
                   "r"(words.at[k + 3])
                   : "memory");
    }
    return;
  }
#endif
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
