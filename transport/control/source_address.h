// By what connections of one origin are counted together.
#pragma once

#include <string>

namespace monograph::control {

// "127.0.0.1" of "127.0.0.1:40312" and of "[::ffff:127.0.0.1]:40312"; of another IPv6 address its
// network, "2001:db8:0:1::/64", since a host has all addresses of one. Other text comes back as it
// is.
std::string SourceAddress(const std::string& peer);

}  // namespace monograph::control
