// The address of a UCX transport: what stands around UCX's own bytes, so that junk is refused
// before UCX sees it.
//
//   address  = "MGUX" version:u8 ucx_major:u8 ucx_minor:u8 reference_bytes:u8 instance:u64 host:u64
//              length:u32 crc:u32 reference worker_address
//   version  = 6
//   instance   names one transport; 64 random bits
//   host       names its host (transport/host_number.h); 0: not known
//   length   = number of bytes of reference and worker_address (UCX's own, opaque)
//   reference  where the process lets others read its memory (transport/reference/introduction.h);
//              without bytes: nowhere
//   crc      = CRC-32 of everything before it and of all that follows
//
// Integers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

struct UcxAddress {
  uint64_t instance = 0;
  uint64_t host = 0;
  std::string reference;  // at most 255 bytes
  std::string worker_address;
};

std::string EncodeUcxAddress(const UcxAddress& address);
// InvalidArgument that says what is wrong.
Result<UcxAddress> DecodeUcxAddress(std::string_view bytes);

}  // namespace monograph
