#include "transport/control/host_port.h"

#include <charconv>

namespace monograph::control {

std::string HostPort::ToString() const {
  const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return shown + ":" + std::to_string(port);
}

Result<HostPort> ParseHostPort(std::string_view text) {
  const Status bad =
      InvalidArgument("Could not interpret \"" + std::string(text) + "\" as a host-port pair.");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad;  // a bare IPv6 address: its last group would be taken for the port
  }
  for (const char c : host) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '/' || c == '[' || c == ']' || c == '@' ||
        c == ',')
      return bad;
  }
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || number == 0 ||
      number > 65535) {
    return bad;
  }
  return HostPort{std::string(host), static_cast<uint16_t>(number)};
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace monograph::control
