// Networks that the user trusts (--trusted_network): in them UCX may use TCP. Its TCP checks
// nothing: whoever reaches its port reads and writes tensors and can end the process.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace monograph {

// "10.0.0.0/24", "fd00:12::/64": the addresses that begin with the first `bits` bits of `bytes`.
struct IpNetwork {
  int family = AF_INET;
  int bits = 0;
  std::array<uint8_t, 16> bytes{};  // 4 of them for AF_INET; those beyond `bits` are 0

  // False for one of another family.
  bool Contains(const sockaddr& address) const;
  bool Contains(const IpNetwork& part) const;
  bool loopback() const;  // some of the host's own addresses, that others do not reach
  std::string ToString() const;
  std::string AddressText() const;  // without the number of bits
};

// InvalidArgument that says what is wrong with a text and what would be right.
Result<std::vector<IpNetwork>> ParseNetworks(const std::vector<std::string>& texts);
bool Contains(const std::vector<IpNetwork>& networks, const sockaddr& address);

// "10.0.0.2", without a port.
std::string AddressText(const sockaddr& address);

// A network device of this machine that is up, by the address that UCX's TCP takes: the first of
// IPv4, else the first of IPv6 that is not link-local.
struct NetDevice {
  std::string name;  // "eth0"
  sockaddr_storage storage{};

  const sockaddr& address() const { return reinterpret_cast<const sockaddr&>(storage); }
};

std::vector<NetDevice> NetDevices();
// The address alone, as a network.
IpNetwork NetworkOf(const sockaddr& address);

}  // namespace monograph
