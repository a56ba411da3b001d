// Writing protocol buffers' wire format by hand, where building messages first would cost more than all the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace monograph::wire_format {

inline void PutVarint(std::string* out, uint64_t value) {
  while (value > 127) {
    out->push_back(static_cast<char>(value | 128));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

inline size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value > 127; value >>= 7) ++size;
  return size;
}

// A length-delimited field: string, bytes or message. REQUIRES: field < 16.
inline void PutBytes(std::string* out, int field, std::string_view bytes) {
  out->push_back(static_cast<char>(field << 3 | 2));
  PutVarint(out, bytes.size());
  out->append(bytes);
}

}  // namespace monograph::wire_format
