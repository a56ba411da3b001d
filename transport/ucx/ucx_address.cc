#include "transport/ucx/ucx_address.h"

#include <ucp/api/ucp.h>

#include <array>

#include "base/codec.h"

namespace monograph {
namespace {

constexpr std::string_view kMagic = "MGUX";
constexpr uint8_t kVersion = 4;
constexpr size_t kPrefixBytes = 48;  // before the CRC

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
  encoder.Put(address.process.space);
  encoder.Put(address.process.started);
  encoder.Put(address.process.id);
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
  address.process.space = decoder.Get<uint64_t>();
  address.process.started = decoder.Get<uint64_t>();
  address.process.id = decoder.Get<uint32_t>();
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
