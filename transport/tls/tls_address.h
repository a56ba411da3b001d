// The address of a TLS transport.
//
//   address  = "MGTL" version:u8 flags:u8 0:u16 instance:u64 host:u64 port:u16 length:u16 crc:u32 name
//   version  = 1
//   flags    1: connections are TLS; 0: plain TCP, without a key
//   instance   names one transport of one process; 64 random bits
//   host       names the host, as in transport/ucx/ucx_address.h; 0: not known
//   port       where the process listens for data; 0: it does not listen
//   name     = byte[length], the host to dial; empty if it does not listen
//   crc      = CRC-32 of everything before it and of name
//
// Integers are little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph {

struct TlsAddress {
  bool tls = true;
  uint64_t instance = 0;
  uint64_t host = 0;
  uint16_t port = 0;
  std::string name;

  bool listens() const { return port != 0; }
};

std::string EncodeTlsAddress(const TlsAddress& address);
// InvalidArgument that says what is wrong.
Result<TlsAddress> DecodeTlsAddress(std::string_view bytes);

}  // namespace monograph
