#include "base/record.h"

#include <cstdint>

#include "base/crc32c.h"

namespace monograph {
namespace {

void AppendCrc(const void* bytes, size_t size, std::string* to) {
  const uint32_t crc = MaskedCrc32c(AddToCrc32c(0, bytes, size));
  to->append(reinterpret_cast<const char*>(&crc), sizeof crc);
}

}  // namespace

void AppendRecord(std::string_view bytes, std::string* to) {
  const uint64_t length = bytes.size();
  to->append(reinterpret_cast<const char*>(&length), sizeof length);
  AppendCrc(&length, sizeof length, to);
  to->append(bytes);
  AppendCrc(bytes.data(), bytes.size(), to);
}

}  // namespace monograph
