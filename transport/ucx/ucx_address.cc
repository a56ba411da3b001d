#include "transport/ucx/ucx_address.h"

#include <ucp/api/ucp.h>

#include "base/codec.h"
#include "transport/address_checksum.h"

namespace monograph {
namespace {

constexpr std::string_view kUcxAddressMagic = "MGUX";
constexpr uint8_t kUcxAddressVersion = 6;

}  // namespace

std::string EncodeUcxAddress(const UcxAddress& address) {
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  Encoder encoder;
  for (const char c : kUcxAddressMagic) encoder.Put(c);
  encoder.Put(kUcxAddressVersion);
  encoder.Put(static_cast<uint8_t>(major));
  encoder.Put(static_cast<uint8_t>(minor));
  encoder.Put(static_cast<uint8_t>(address.reference.size()));
  encoder.Put(address.instance);
  encoder.Put(address.host);
  const std::string rest = address.reference + address.worker_address;
  encoder.Put(static_cast<uint32_t>(rest.size()));
  const uint32_t crc = AddressChecksum(encoder.bytes(), rest);
  encoder.Put(crc);
  return encoder.Take() + rest;
}

Result<UcxAddress> DecodeUcxAddress(std::string_view bytes) {
  if (!bytes.starts_with(kUcxAddressMagic))
    return InvalidArgument("its address is not one of a UCX transport");
  Decoder decoder(bytes.substr(kUcxAddressMagic.size()));
  const auto version = decoder.Get<uint8_t>();
  const auto their_major = decoder.Get<uint8_t>();
  const auto their_minor = decoder.Get<uint8_t>();
  const size_t reference_bytes = decoder.Get<uint8_t>();
  UcxAddress address;
  address.instance = decoder.Get<uint64_t>();
  address.host = decoder.Get<uint64_t>();
  const auto length = decoder.Get<uint32_t>();
  const auto crc = decoder.Get<uint32_t>();
  if (!decoder.ok() || decoder.rest().size() != length || length <= reference_bytes) {
    return InvalidArgument("its UCX address is cut short or too long (" +
                           std::to_string(bytes.size()) + " bytes)");
  }
  if (crc != AddressChecksum(bytes.substr(0, kAddressPrefixBytes), decoder.rest())) {
    return InvalidArgument("its UCX address is damaged (the checksum differs)");
  }
  unsigned major, minor, release;
  ucp_get_version(&major, &minor, &release);
  if (version != kUcxAddressVersion || their_major != major || their_minor != minor) {
    return InvalidArgument("its UCX address is of version " + std::to_string(version) + " (UCX " +
                           std::to_string(their_major) + "." + std::to_string(their_minor) +
                           "); this process speaks version " + std::to_string(kUcxAddressVersion) +
                           " (UCX " + std::to_string(major) + "." + std::to_string(minor) + ")");
  }
  address.reference = decoder.rest().substr(0, reference_bytes);
  address.worker_address = decoder.rest().substr(reference_bytes);
  return address;
}

}  // namespace monograph
