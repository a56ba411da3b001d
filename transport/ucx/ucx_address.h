// The address of a UCX transport: what stands around UCX's own bytes, so that junk is refused
// before UCX sees it.
//
//   address  = "MGUX" version:u8 ucx_major:u8 ucx_minor:u8 0:u8 instance:u64 host:u64 process
//              length:u32 crc:u32 worker_address
//   process  = space:u64 started:u64 id:u32
//   version  = 4
//   instance   names one transport of one process; 64 random bits
//   host       names the host: a hash of the kernel's boot and of the network namespace; 0: not known
//   process    whose the transport is (transport/ucx/ucx_process.h)
//   length   = number of bytes of worker_address (UCX's own, opaque)
//   crc      = CRC-32 of everything before it and of worker_address
//
// Integers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/ucx/ucx_process.h"

namespace monograph {

struct UcxAddress {
  uint64_t instance = 0;
  uint64_t host = 0;
  UcxProcess process;
  std::string worker_address;
};

std::string EncodeUcxAddress(const UcxAddress& address);
// InvalidArgument that says what is wrong.
Result<UcxAddress> DecodeUcxAddress(std::string_view bytes);

}  // namespace monograph
