// The checksum of an address, which its prefix ends with.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace monograph {

// Of UCX's and TLS's addresses: the bytes before the checksum.
inline constexpr size_t kAddressPrefixBytes = 28;

// CRC-32 of `prefix` and `rest` together.
inline uint32_t AddressChecksum(std::string_view prefix, std::string_view rest) {
  uLong crc = 0;
  for (const std::string_view part : {prefix, rest})
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
  return static_cast<uint32_t>(crc);
}

}  // namespace monograph
