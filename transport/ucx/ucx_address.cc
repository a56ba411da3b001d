#include "transport/ucx/ucx_address.h"

#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/codec.h"

namespace monograph {
namespace {

constexpr std::string_view kMagic = "MGUX";
constexpr uint8_t kVersion = 3;
constexpr size_t kPrefixBytes = 28;  // before the CRC

uint32_t Crc32(uint32_t crc, std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0u);
      entries[i] = value;
    }
    return entries;
  }();
  crc = ~crc;
  for (const char c : bytes) crc = table[(crc ^ static_cast<uint8_t>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}  // namespace

uint64_t HostNumber() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::array<char, 64> space;
  const ssize_t length = readlink("/proc/self/ns/net", space.data(), space.size());
  if (!std::getline(file, name) || length <= 0) return 0;
  name.append(space.data(), static_cast<size_t>(length));
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return std::max<uint64_t>(hash, 1);
}

std::string EncodeUcxAddress(const UcxAddress& address) {
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  Encoder encoder;
  for (const char c : kMagic) encoder.Put(c);
  encoder.Put(kVersion);
  encoder.Put(static_cast<uint8_t>(major));
  encoder.Put(static_cast<uint8_t>(minor));
  encoder.Put(uint8_t{0});
  encoder.Put(address.instance);
  encoder.Put(address.host);
  encoder.Put(static_cast<uint32_t>(address.worker_address.size()));
  const uint32_t crc = Crc32(Crc32(0, encoder.bytes()), address.worker_address);
  encoder.Put(crc);
  return encoder.Take() + address.worker_address;
}

Result<UcxAddress> DecodeUcxAddress(std::string_view bytes) {
  if (!bytes.starts_with(kMagic))
    return InvalidArgument("its address is not one of a UCX transport");
  Decoder decoder(bytes.substr(kMagic.size()));
  const auto version = decoder.Get<uint8_t>();
  const auto their_major = decoder.Get<uint8_t>();
  const auto their_minor = decoder.Get<uint8_t>();
  decoder.Get<uint8_t>();
  UcxAddress address;
  address.instance = decoder.Get<uint64_t>();
  address.host = decoder.Get<uint64_t>();
  const auto length = decoder.Get<uint32_t>();
  const auto crc = decoder.Get<uint32_t>();
  if (!decoder.ok() || decoder.rest().size() != length || length == 0) {
    return InvalidArgument("its UCX address is cut short or too long (" +
                           std::to_string(bytes.size()) + " bytes)");
  }
  if (crc != Crc32(Crc32(0, bytes.substr(0, kPrefixBytes)), decoder.rest())) {
    return InvalidArgument("its UCX address is damaged (the checksum differs)");
  }
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  if (version != kVersion || their_major != major || their_minor != minor) {
    return InvalidArgument("its UCX address is of version " + std::to_string(version) + " (UCX " +
                           std::to_string(their_major) + "." + std::to_string(their_minor) +
                           "); this process speaks version " + std::to_string(kVersion) + " (UCX " +
                           std::to_string(major) + "." + std::to_string(minor) + ")");
  }
  address.worker_address = decoder.rest();
  return address;
}

}  // namespace monograph
