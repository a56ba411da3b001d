// Elements whose type does not matter, by size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/status.h"

namespace monograph::ops {

struct alignas(16) Word16 {
  uint64_t low, high;
};

inline uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// The size of the largest word that all of these addresses and sizes are multiples of.
inline size_t WordOf(std::initializer_list<uintptr_t> places) {
  uintptr_t all = 16;
  for (uintptr_t place : places) all |= place;
  return static_cast<size_t>(all & (~all + 1));
}

// fn(W{}) with a plain type of 1, 2, 4, 8 or 16 bytes:
//   DispatchWord(size, [&](auto word) { using W = decltype(word); ...; return Status(); })
template <typename Fn>
Status DispatchWord(size_t size, Fn fn) {
  switch (size) {
    case 1:
      return fn(uint8_t{});
    case 2:
      return fn(uint16_t{});
    case 4:
      return fn(uint32_t{});
    case 8:
      return fn(uint64_t{});
    case 16:
      return fn(Word16{});
    default:
      return Internal("elements of " + std::to_string(size) + " bytes cannot be moved");
  }
}

}  // namespace monograph::ops
