// Fnv1a: a hash of bytes that is the same in every process and build, for numbers that processes
// compare or that seed random streams. Not for tables, nor against an adversary.
// Source: G. Fowler, L. C. Noll, P. Vo, FNV-1a, 64 bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace monograph {

// `hash`: of the bytes before these.
inline uint64_t Fnv1a(std::string_view bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace monograph
