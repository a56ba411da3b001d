#include "transport/trusted_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace monograph {
namespace {

// The address's bytes in network order, 4 or 16; nullptr if it is of neither family.
const uint8_t* BytesOf(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return reinterpret_cast<const uint8_t*>(
        &reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  if (address.sa_family == AF_INET6)
    return reinterpret_cast<const uint8_t*>(
        &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  return nullptr;
}

bool SameBits(const uint8_t* a, const uint8_t* b, int bits) {
  if (std::memcmp(a, b, static_cast<size_t>(bits / 8)) != 0) return false;
  const int rest = bits % 8;
  return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

Result<IpNetwork> ParseNetwork(const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument("'" + text + "' is no network: " + why +
                           "; write an address and the number of its leading bits, such as "
                           "10.0.0.0/24");
  };
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return wrong("it has no '/'");
  IpNetwork network;
  const std::string address = text.substr(0, slash);
  network.family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(network.family, address.c_str(), network.bytes.data()) != 1)
    return wrong("'" + address + "' is no address");
  const int most = network.family == AF_INET ? 32 : 128;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, network.bits);
  if (error != std::errc() || stop != end || network.bits < 0 || network.bits > most)
    return wrong("'" + text.substr(slash + 1) + "' is no number from 0 to " + std::to_string(most));
  const std::array<uint8_t, 16> given = network.bytes;
  for (int bit = network.bits; bit < most; ++bit)
    network.bytes[static_cast<size_t>(bit / 8)] &= static_cast<uint8_t>(~(0x80 >> (bit % 8)));
  if (network.bytes != given)
    return wrong("its address goes on after " + std::to_string(network.bits) + " bits (" +
                 network.ToString() + " would be one)");
  return network;
}

}  // namespace

bool IpNetwork::Contains(const sockaddr& address) const {
  return address.sa_family == family && SameBits(BytesOf(address), bytes.data(), bits);
}

bool IpNetwork::Contains(const IpNetwork& part) const {
  return part.family == family && part.bits >= bits &&
         SameBits(part.bytes.data(), bytes.data(), bits);
}

bool IpNetwork::loopback() const {
  static constexpr std::array<uint8_t, 16> kLoopback6 = {0, 0, 0, 0, 0, 0, 0, 0,
                                                         0, 0, 0, 0, 0, 0, 0, 1};
  return family == AF_INET ? bits >= 8 && bytes[0] == 127 : bits == 128 && bytes == kLoopback6;
}

std::string IpNetwork::AddressText() const {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, bytes.data(), text, sizeof text);
  return text;
}

std::string IpNetwork::ToString() const { return AddressText() + "/" + std::to_string(bits); }

Result<std::vector<IpNetwork>> ParseNetworks(const std::vector<std::string>& texts) {
  std::vector<IpNetwork> networks;
  for (const std::string& text : texts) {
    MG_ASSIGN_OR_RETURN(networks.emplace_back(), ParseNetwork(text));
  }
  return networks;
}

bool Contains(const std::vector<IpNetwork>& networks, const sockaddr& address) {
  return std::any_of(networks.begin(), networks.end(),
                     [&](const IpNetwork& network) { return network.Contains(address); });
}

IpNetwork NetworkOf(const sockaddr& address) {
  IpNetwork network{.family = address.sa_family, .bits = address.sa_family == AF_INET ? 32 : 128};
  if (const uint8_t* const bytes = BytesOf(address); bytes != nullptr)
    std::memcpy(network.bytes.data(), bytes, static_cast<size_t>(network.bits / 8));
  return network;
}

std::string AddressText(const sockaddr& address) { return NetworkOf(address).AddressText(); }

std::vector<NetDevice> NetDevices() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> release(list, freeifaddrs);
  std::vector<NetDevice> devices;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      const auto known = [&](const NetDevice& device) { return device.name == entry->ifa_name; };
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family ||
          (entry->ifa_flags & IFF_UP) == 0 || std::any_of(devices.begin(), devices.end(), known))
        continue;
      NetDevice device{.name = entry->ifa_name};
      if (family == AF_INET) {
        std::memcpy(&device.storage, entry->ifa_addr, sizeof(sockaddr_in));
      } else {
        std::memcpy(&device.storage, entry->ifa_addr, sizeof(sockaddr_in6));
        const auto& address = reinterpret_cast<const sockaddr_in6&>(device.storage);
        if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) continue;
      }
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

}  // namespace monograph
