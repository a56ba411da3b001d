// CRC-32C (Castagnoli), the checksum of TensorFlow's files: records, tables, checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>

namespace monograph {

// Of the bytes so far and these; it begins with 0.
uint32_t AddToCrc32c(uint32_t crc, const void* bytes, size_t size);

// As these files store it, turned and shifted, so that a CRC of bytes that hold CRCs stays a good
// one.
constexpr uint32_t MaskedCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace monograph
