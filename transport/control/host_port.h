// "host:port" texts, as in cluster descriptions: "node1:2222", "127.0.0.1:2222", "[::1]:2222".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace monograph::control {

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;

  // "node1:2222"; an IPv6 address gets its brackets back.
  std::string ToString() const;
};

// InvalidArgument `Could not interpret "X" as a host-port pair.` for anything else than a host, a
// colon and a port in 1..65535.
Result<HostPort> ParseHostPort(std::string_view text);

// "localhost", 127.x.y.z and ::1.
bool IsLoopback(std::string_view host);

}  // namespace monograph::control
