// What stands before the header of a message that has a payload.
//
//   active message 1 = header                       as its data; no payload
//   active message 2 = source:u64 header            as UCX's header; its data is the payload
//   active message 3 = reference                    as UCX's header; its data is the header
//
// A reference stands for a payload (transport/reference/references.h), its five words u64 each:
//
//   reference = maker lease offset bytes slot
//
// `source` is the sender's instance (transport/ucx/ucx_address.h), little-endian.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "transport/transport.h"

namespace monograph {

struct UcxHeader {
  uint64_t source = 0;
  std::string_view text;  // a view of the bytes
};

// Nothing if the bytes are too few, or more than any header has.
inline std::optional<UcxHeader> DecodeUcxHeader(std::string_view bytes) {
  UcxHeader header;
  constexpr size_t kSource = sizeof header.source;
  if (bytes.size() < kSource || bytes.size() > kSource + kMaxHeaderBytes) return std::nullopt;
  std::memcpy(&header.source, bytes.data(), kSource);
  header.text = bytes.substr(kSource);
  return header;
}

}  // namespace monograph
