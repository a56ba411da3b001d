#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <climits>

namespace monograph {

uint32_t AddToCrc32c(uint32_t crc, const void* bytes, size_t size) {
  // The library reads only, and counts bytes with an int. It leaves the inversions to the caller.
  auto* at = static_cast<unsigned char*>(const_cast<void*>(bytes));
  crc = ~crc;
  while (size > 0) {
    const size_t piece = std::min<size_t>(size, INT_MAX);
    crc = crc32_iscsi(at, static_cast<int>(piece), crc);
    at += piece;
    size -= piece;
  }
  return ~crc;
}

}  // namespace monograph
