#include "transport/control/source_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

namespace monograph::control {

std::string SourceAddress(const std::string& peer) {
  const size_t colon = peer.rfind(':');
  if (colon == std::string::npos) return peer;
  if (peer.front() != '[' || peer[colon - 1] != ']') return peer.substr(0, colon);
  in6_addr address{};
  // A link-local address has a zone, "%eth0", behind it.
  const std::string host = peer.substr(1, std::min(peer.find('%'), colon - 1) - 1);
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1) return peer.substr(0, colon);
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
  }
  if (IN6_IS_ADDR_LOOPBACK(&address)) return host;
  std::fill(address.s6_addr + 8, address.s6_addr + 16, uint8_t{0});
  return std::string(inet_ntop(AF_INET6, &address, text, sizeof text)) + "/64";
}

}  // namespace monograph::control
